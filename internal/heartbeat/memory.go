package heartbeat

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"millrace/internal/seam"
)

// Memory is pages of roles that share one process, for simulations.
type Memory struct {
	clock  seam.Clock
	shared *shared
}

// shared is what all roles of the process see.
type shared struct {
	mu    sync.Mutex
	pages map[string]*page
}

var _ Pages = (*Memory)(nil)

// NewMemory returns no pages yet; their beats follow a clock.
func NewMemory(clock seam.Clock) *Memory {
	return &Memory{clock: clock, shared: &shared{pages: map[string]*page{}}}
}

// By returns the same pages for a role with a clock of its own.
func (m *Memory) By(clock seam.Clock) *Memory { return &Memory{clock: clock, shared: m.shared} }

// Create makes a page under any path.
func (m *Memory) Create(path string) (*Page, error) {
	own := new(page)
	own.init(os.Getpid())
	s := m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = own
	pause := func(ctx context.Context, d time.Duration) {
		select {
		case <-ctx.Done():
		case <-m.clock.After(d):
		}
	}
	return &Page{page: own, path: path, pause: pause, alone: func() func() { return func() {} }, close: func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pages[path] == own {
			delete(s.pages, path)
		}
		return nil
	}}, nil
}

// Open watches a page that was created and not closed.
func (m *Memory) Open(path string) (*Monitor, error) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	own := m.shared.pages[path]
	if own == nil {
		return nil, fmt.Errorf("open heartbeat page %s: %w", path, os.ErrNotExist)
	}
	never := func() bool { return false }
	return &Monitor{page: own, pid: os.Getpid(), down: never, ran: never, close: func() error { return nil }}, nil
}
