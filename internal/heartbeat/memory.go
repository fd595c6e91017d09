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
	clock seam.Clock
	mu    sync.Mutex
	pages map[string]*page
}

var _ Pages = (*Memory)(nil)

// NewMemory returns no pages yet; their beats follow a clock.
func NewMemory(clock seam.Clock) *Memory { return &Memory{clock: clock, pages: map[string]*page{}} }

// Create makes a page under any path.
func (m *Memory) Create(path string) (*Page, error) {
	own := new(page)
	own.init(os.Getpid())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pages[path] = own
	pause := func(ctx context.Context, d time.Duration) {
		select {
		case <-ctx.Done():
		case <-m.clock.After(d):
		}
	}
	return &Page{page: own, path: path, pause: pause, close: func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.pages[path] == own {
			delete(m.pages, path)
		}
		return nil
	}}, nil
}

// Open watches a page that was created and not closed.
func (m *Memory) Open(path string) (*Monitor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.pages[path]
	if own == nil {
		return nil, fmt.Errorf("open heartbeat page %s: %w", path, os.ErrNotExist)
	}
	return &Monitor{page: own, pid: os.Getpid(), down: func() bool { return false }, close: func() error { return nil }}, nil
}
