// Package heartbeattest provides heartbeat pages for processes that a test plays inside one process.
package heartbeattest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"millrace/internal/heartbeat"
	"millrace/internal/seam"
)

// Memory holds the pages of roles that share one process.
type Memory struct {
	clock  seam.Clock
	shared *shared
}

// shared is common to all roles of the process.
type shared struct {
	mu    sync.Mutex
	pages map[string]*heartbeat.Words
}

var _ heartbeat.Pages = (*Memory)(nil)

// NewMemory returns no pages yet. Their beats follow a clock.
func NewMemory(clock seam.Clock) *Memory {
	return &Memory{clock: clock, shared: &shared{pages: map[string]*heartbeat.Words{}}}
}

// By returns the same pages for a role that has another clock.
func (m *Memory) By(clock seam.Clock) *Memory { return &Memory{clock: clock, shared: m.shared} }

// Create makes a page under any path.
func (m *Memory) Create(path string) (*heartbeat.Page, error) {
	own, s := new(heartbeat.Words), m.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages[path] = own
	return heartbeat.NewPage(own, path, os.Getpid(), heartbeat.Thread{
		Keep: func() (free func()) { return func() {} },
		Pause: func(ctx context.Context, d time.Duration) {
			select {
			case <-ctx.Done():
			case <-m.clock.After(d):
			}
		},
		Close: func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.pages[path] == own {
				delete(s.pages, path)
			}
			return nil
		},
	}), nil
}

// Open watches a page that was created and not closed.
func (m *Memory) Open(path string) (*heartbeat.Monitor, error) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	own := m.shared.pages[path]
	if own == nil {
		return nil, fmt.Errorf("open heartbeat page %s: %w", path, os.ErrNotExist)
	}
	never := func() bool { return false }
	return heartbeat.NewMonitor(own, os.Getpid(), heartbeat.Kernel{
		IsDown: never, HasRun: never, Threads: func() (idle heartbeat.Threads) { return },
		Close: func() error { return nil },
	}), nil
}
