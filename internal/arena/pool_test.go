package arena_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// TestArenasAreFew: whatever peers come, die and go, a pool has at most those in use, eight free ones for each peer
// that it keeps, and one for each 256 KiB of its limit. Each is a descriptor of the process.
func TestArenasAreFew(t *testing.T) {
	const limit, spare, smallest = 32 << 20, 8, 256 << 10
	rnd := rand.New(rand.NewPCG(1, 2))
	open := map[string]bool{}
	p := arena.NewPool(counted{&arenatest.Memory{}, open}, limit, slog.New(slog.DiscardHandler))
	var used []*arena.Lease
	peers := []string{"l0", "l1", "l2"}
	most := 0
	for step := range 20_000 {
		switch n := rnd.IntN(100); {
		case n < 45:
			if l := p.Take(peers[rnd.IntN(len(peers))], 1<<rnd.IntN(19)); l != nil {
				used = append(used, l)
			}
		case n < 99 && len(used) > 0:
			i := rnd.IntN(len(used))
			used[i].Return(rnd.IntN(10) == 0)
			used = slices.Delete(used, i, i+1)
		case n == 99: // a process died, and another one has its place
			peers[rnd.IntN(len(peers))] = fmt.Sprintf("l%d", step)
			p.KeepOnly(peers)
		}
		if len(used) > 40 {
			used[0].Return(false)
			used = used[1:]
		}
		bound := min(len(used)+spare*len(peers), limit/smallest)
		if most = max(most, len(open)); len(open) > bound {
			t.Fatalf("step %d: %d arenas, %d of them in use, with %d peers", step, len(open), len(used), len(peers))
		}
	}
	if most < spare*len(peers) {
		t.Errorf("at most %d arenas were open: the test does not reach the bound", most)
	}
}

// counted notes the arenas that are open.
type counted struct {
	arena.Space
	open map[string]bool
}

func (c counted) Create(tokens int) (*arena.Arena, error) {
	a, err := c.Space.Create(tokens)
	if err != nil {
		return nil, err
	}
	c.open[a.Name] = true
	return arena.New(a.Name, a.Tokens, func() error {
		delete(c.open, a.Name)
		return a.Close()
	}), nil
}
