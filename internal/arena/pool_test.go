package arena_test

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"millrace/internal/arena"
	"millrace/internal/arena/arenatest"
)

const mib = 256 << 10 // tokens

func newPool(limit int64) *arena.Pool {
	return arena.NewPool(&arenatest.Memory{}, limit, slog.New(slog.DiscardHandler))
}

// TestAnArenaIsUsedAgain by the same peer alone, and only if that peer cannot write to it any more.
func TestAnArenaIsUsedAgain(t *testing.T) {
	p := newPool(64 << 20)
	first := p.Take("l1", 100)
	name := first.Name
	first.Return(false)
	if other := p.Take("l2", 100); other.Name == name {
		t.Error("another peer got it")
	}
	second := p.Take("l1", 100)
	if second.Name != name {
		t.Error("it was not used again")
	}
	second.Return(true)
	third := p.Take("l1", 100)
	if third.Name == name {
		t.Error("it was used again while the peer may write to it")
	}
	if gone := p.Gone("l1"); !slices.Equal(gone, []string{name}) {
		t.Errorf("gone: %v", gone)
	}
	p.Forgotten("l1", []string{name})
	if gone := p.Gone("l1"); len(gone) != 0 {
		t.Errorf("still gone: %v", gone)
	}
	p.KeepOnly([]string{"l2"})
	third.Return(false)
	if fourth := p.Take("l1", 100); fourth.Name == third.Name {
		t.Error("an arena of a peer that was dropped is used again")
	}
}

// TestAPoolIsBounded: free arenas make room for others, and those in use never.
func TestAPoolIsBounded(t *testing.T) {
	p := newPool(4 << 20)
	a, b := p.Take("l1", 2*mib), p.Take("l1", 2*mib)
	if a == nil || b == nil || p.Take("l1", 1) != nil {
		t.Fatal("the limit does not hold")
	}
	a.Return(false)
	if len(a.Tokens) != 2*mib {
		t.Errorf("%d tokens", len(a.Tokens))
	}
	c := p.Take("l2", mib)
	if c == nil || p.Take("l2", 2*mib) != nil {
		t.Error("a free arena of another peer was not closed for it, or the limit does not hold")
	}
	if p.Take("l2", 5*mib) != nil {
		t.Error("an arena above the limit")
	}
}

type full struct{ arenatest.Memory }

func (*full) Create(int) (*arena.Arena, error) { return nil, errors.New("no memory") }

// TestWithoutSharedMemoryThereIsNoArena, and no error.
func TestWithoutSharedMemoryThereIsNoArena(t *testing.T) {
	for _, space := range []arena.Space{nil, &full{}} {
		if arena.NewPool(space, 1<<30, slog.New(slog.DiscardHandler)).Take("l1", 1) != nil {
			t.Errorf("%T gave an arena", space)
		}
	}
}
