// Package arena shares memory between the processes of one host: the owner makes an arena, and a peer that learns its
// name writes to it. The owner decides about the use of an arena; an arena has no locks.
package arena

import (
	"fmt"
	"unsafe"

	"millrace/internal/memfd"
)

// Space makes and opens arenas. Host does so on this host, arenatest.Memory in a simulation.
type Space interface {
	// Create makes an arena with room for that many tokens. The caller owns it.
	Create(tokens int) (*Arena, error)
	// Open maps the arena of a name, which its owner has passed on.
	Open(name string) (*Arena, error)
}

// Arena is shared memory for tokens. Close ends the view of this process; no slice of Tokens may be used after it. The
// memory is free when no process has a view.
type Arena struct {
	Name   string
	Tokens []uint32
	close  func() error
}

// New returns an arena over given memory, for implementations of Space.
func New(name string, tokens []uint32, close func() error) *Arena { return &Arena{name, tokens, close} }

// Close ends the view.
func (a *Arena) Close() error { return a.close() }

// Host makes arenas of memfds, which another process of the same user may open.
type Host struct{}

var _ Space = Host{}

// Create implements Space.
func (Host) Create(tokens int) (*Arena, error) {
	memory, err := memfd.Create("arena", 4*int64(tokens))
	if err != nil {
		return nil, fmt.Errorf("make arena of %d tokens: %w", tokens, err)
	}
	return over(memory.Name(), memory), nil
}

// Open implements Space.
func (Host) Open(name string) (*Arena, error) {
	memory, err := memfd.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open arena: %w", err)
	}
	return over(name, memory), nil
}

func over(name string, m *memfd.Memory) *Arena {
	return New(name, unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(m.Bytes))), len(m.Bytes)/4), m.Close)
}
