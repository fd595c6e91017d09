// Package arenatest has arenas for simulations.
package arenatest

import (
	"fmt"
	"sync"

	"millrace/internal/arena"
)

// Memory makes arenas in the memory of this process, for hosts that a simulation runs in one process. Its zero value is
// ready for use.
type Memory struct {
	mu   sync.Mutex
	made int
	open map[string][]uint32
}

var _ arena.Space = (*Memory)(nil)

// Create implements arena.Space.
func (m *Memory) Create(tokens int) (*arena.Arena, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		m.open = map[string][]uint32{}
	}
	m.made++
	name := fmt.Sprintf("memory-%d", m.made)
	m.open[name] = make([]uint32, tokens)
	return arena.New(name, m.open[name], func() error { m.drop(name); return nil }), nil
}

// Open implements arena.Space.
func (m *Memory) Open(name string) (*arena.Arena, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tokens := m.open[name]
	if tokens == nil {
		return nil, fmt.Errorf("open arena %s: its owner has closed it", name)
	}
	return arena.New(name, tokens, func() error { return nil }), nil
}

func (m *Memory) drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, name)
}
