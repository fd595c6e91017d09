package ring

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func newTestGroup(t *testing.T, frames uint32) *Group {
	g := NewGroup(frames, 0, 0)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func mustTake(t *testing.T, m *Member, at At) (Frame, bool) {
	t.Helper()
	f, mine, err := m.Take(t.Context(), at, 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	if mine {
		f.Bytes[0] = byte(at.Step)
		if err := m.Built(at, nil); err != nil {
			t.Fatal(err)
		}
	}
	return f, mine
}

func TestTheFirstMemberBuildsForAll(t *testing.T) {
	g := newTestGroup(t, 2)
	a, b := g.Join(At{}), g.Join(At{})
	first, mine := mustTake(t, a, At{})
	second, again := mustTake(t, b, At{})
	if !mine || again || first.Ring != second.Ring || first.Number != second.Number {
		t.Errorf("got frames %d and %d, built %v and %v", first.Number, second.Number, mine, again)
	}
}

func TestAFrameIsFreeAfterItsLastUser(t *testing.T) {
	g := newTestGroup(t, 2)
	a, b := g.Join(At{}), g.Join(At{})
	frames := []Frame{}
	for n := range uint64(2) {
		f, _ := mustTake(t, a, At{Step: n})
		frames = append(frames, f)
	}
	for _, f := range frames {
		if err := a.Release(f.Ring.Number(), f.Number, f.Generation); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := a.Take(short, At{Step: 2}, 100, 100); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a third frame came (%v) while the other member still needs both", err)
	}
	mustTake(t, b, At{})
	if err := b.Release(frames[0].Ring.Number(), frames[0].Number, frames[0].Generation); err != nil {
		t.Fatal(err)
	}
	if f, mine := mustTake(t, a, At{Step: 2}); !mine || f.Number != frames[0].Number {
		t.Errorf("got frame %d, built %v: want frame %d", f.Number, mine, frames[0].Number)
	}
}

func TestALateMemberBuildsForItself(t *testing.T) {
	g := newTestGroup(t, 2)
	a := g.Join(At{})
	f, _ := mustTake(t, a, At{Step: 4})
	if err := a.Release(f.Ring.Number(), f.Number, f.Generation); err != nil {
		t.Fatal(err)
	}
	held, _ := mustTake(t, a, At{Step: 5})
	late := g.Join(At{Step: 4})
	if _, _, err := late.Take(t.Context(), At{Step: 4}, 100, 100); !errors.Is(err, ErrPassed) {
		t.Fatalf("%v, want ErrPassed", err)
	}
	if f, mine := mustTake(t, late, At{Step: 5}); mine || f.Number != held.Number {
		t.Error("a batch that is still there was not shared with the late member")
	}
}

func TestAStaleReleaseChangesNothing(t *testing.T) {
	g := newTestGroup(t, 2)
	a, b := g.Join(At{}), g.Join(At{})
	f, _ := mustTake(t, a, At{})
	for name, release := range map[string]func() error{
		"before the batch was taken": func() error { return b.Release(f.Ring.Number(), f.Number, f.Generation) },
		"of another generation":      func() error { return a.Release(f.Ring.Number(), f.Number, f.Generation+1) },
		"of another ring":            func() error { return a.Release(0, f.Number, f.Generation) },
	} {
		if err := release(); !errors.Is(err, ErrStale) {
			t.Errorf("release %s: %v, want ErrStale", name, err)
		}
	}
}

func TestAFailedBuildFreesTheFrame(t *testing.T) {
	g := newTestGroup(t, 2)
	a, b := g.Join(At{}), g.Join(At{})
	if _, mine, err := a.Take(t.Context(), At{}, 100, 100); err != nil || !mine {
		t.Fatal(mine, err)
	}
	if err := a.Built(At{}, errors.New("no tokens")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Take(t.Context(), At{}, 100, 100); !errors.Is(err, ErrPassed) {
		t.Errorf("%v, want ErrPassed", err)
	}
	for n := uint64(1); n <= 2; n++ {
		mustTake(t, b, At{Step: n})
	}
}

func TestTrainersCanOnlyReadAGroup(t *testing.T) {
	g := newTestGroup(t, 2)
	f, _ := mustTake(t, g.Join(At{}), At{Step: 7})
	fd, size := f.Ring.Fd(), int(f.Ring.Size())
	if _, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		t.Errorf("a writable mapping: %v, want EPERM", err)
	}
	read, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(read)
	if read[f.Offset()] != 7 {
		t.Error("the mapping does not show the batch")
	}
	if err := unix.Mprotect(read, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("making the mapping writable: %v, want EACCES", err)
	}
}

// TestGroupKeepsWhatMembersNeed: under random joins, takes, releases and departures, a frame that a member holds keeps
// its batch, and no member waits while nobody holds a frame.
func TestGroupKeepsWhatMembersNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type rank struct {
			member *Member
			next   uint64
			held   map[uint64]Frame
		}
		g := NewGroup(3, 0, 0)
		var ranks []*rank
		for range 3 {
			ranks = append(ranks, &rank{})
		}
		for range rapid.IntRange(1, 60).Draw(t, "turns") {
			r := ranks[rapid.IntRange(0, 2).Draw(t, "rank")]
			switch rapid.SampledFrom([]string{"take", "take", "release", "leave"}).Draw(t, "turn") {
			case "take":
				if r.member == nil {
					*r = rank{g.Join(At{Step: r.next}), r.next, map[uint64]Frame{}}
				}
				f, mine, wait, err := g.take(r.member, At{Step: r.next}, 10, 10)
				if errors.Is(err, ErrPassed) {
					r.next++
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if wait != nil {
					continue
				}
				if mine {
					f.Bytes[0] = byte(r.next)
					if err := r.member.Built(At{Step: r.next}, nil); err != nil {
						t.Fatal(err)
					}
				}
				r.held[r.next] = f
				r.next++
			case "release":
				for step, f := range r.held {
					if err := r.member.Release(f.Ring.Number(), f.Number, f.Generation); err != nil {
						t.Fatal(err)
					}
					delete(r.held, step)
					break
				}
			case "leave":
				if r.member != nil {
					if err := r.member.Leave(); err != nil {
						t.Fatal(err)
					}
					r.next -= uint64(len(r.held)) // a new trainer begins again where the old one had not consumed
					r.member, r.held = nil, nil
				}
			}
			for _, r := range ranks {
				for step, f := range r.held {
					if f.Bytes[0] != byte(step) {
						t.Fatalf("the frame of step %d has the batch of step %d", step, f.Bytes[0])
					}
				}
			}
		}
		for _, r := range ranks {
			if r.member != nil {
				if err := r.member.Leave(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(g.batches) > 0 {
			t.Fatalf("%d frames are lost after all members have left", len(g.batches))
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
