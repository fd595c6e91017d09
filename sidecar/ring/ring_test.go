package ring

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestStrideAndFrames(t *testing.T) {
	for _, c := range []struct {
		bytes, stride int64
		frames        uint32
	}{
		{0, 4 << 10, 8}, {1, 4 << 10, 8}, {4097, 8 << 10, 8}, {1<<20 - 1, 1 << 20, 8}, {1 << 20, 1 << 20, 3},
		{16 << 20, 16 << 20, 3}, {16<<20 + 1, 18 << 20, 3},
	} {
		if got := Stride(c.bytes); got != c.stride {
			t.Errorf("Stride(%d) = %d, want %d", c.bytes, got, c.stride)
		}
		if got := Frames(c.bytes); got != c.frames {
			t.Errorf("Frames(%d) = %d, want %d", c.bytes, got, c.frames)
		}
	}
}

func TestSealed(t *testing.T) {
	p := NewPool(0, 0)
	defer p.Close()
	f, err := p.Acquire(t.Context(), 100, 100)
	if err != nil {
		t.Fatal(err)
	}
	fd := f.Ring.Fd()
	for name, size := range map[string]int64{"shrink": 1, "grow": f.Ring.Size() + 4096} {
		if err := unix.Ftruncate(fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want EPERM", name, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v, want EPERM", err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags %#x, %v: want close-on-exec", flags, err)
	}
}

func TestAcquireWaitsForRelease(t *testing.T) {
	p := NewPool(2, 0)
	defer p.Close()
	a := mustAcquire(t, p, 10)
	b := mustAcquire(t, p, 10)
	p.Lend(a)
	p.Lend(b)
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Acquire(short, 10, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("third of two frames: %v", err)
	}
	got := make(chan Frame, 1)
	go func() { // ends when the frame is released below
		f, _ := p.Acquire(t.Context(), 10, 10)
		got <- f
	}()
	if err := p.Release(0, b.Number, b.Generation); err != nil {
		t.Fatal(err)
	}
	if f := <-got; f.Number != b.Number || f.Generation != b.Generation+1 {
		t.Errorf("got frame %d generation %d, want %d generation %d", f.Number, f.Generation, b.Number, b.Generation+1)
	}
}

func TestGrowRetiresOldRing(t *testing.T) {
	p := NewPool(2, 0)
	defer p.Close()
	small := mustAcquire(t, p, 10)
	p.Lend(small)
	old := small.Ring
	big := mustAcquire(t, p, 100_000)
	if big.Ring.Number() != 1 || len(big.Bytes) < 100_000 {
		t.Fatalf("ring %d of %d bytes", big.Ring.Number(), len(big.Bytes))
	}
	if old.memory.Bytes == nil {
		t.Fatal("old ring gone while the trainer holds a frame of it")
	}
	if again := mustAcquire(t, p, 10); again.Ring != big.Ring {
		t.Error("a small batch went to the old ring")
	}
	if err := p.Release(0, small.Number, small.Generation); err != nil {
		t.Fatal(err)
	}
	if old.memory.Bytes != nil {
		t.Error("old ring kept although all its frames are free")
	}
	if err := p.Release(0, small.Number, small.Generation); !errors.Is(err, ErrStale) {
		t.Errorf("release into a retired ring: %v", err)
	}
}

// TestFewFrames: within a small limit a ring has fewer frames than by default, but at least two.
func TestFewFrames(t *testing.T) {
	for _, limit := range []int64{2 << 20, 5 << 19} {
		p := NewPool(0, limit)
		defer p.Close()
		mustAcquire(t, p, 1<<20)
		mustAcquire(t, p, 1<<20)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Acquire(ctx, 1<<20, 1<<20); !errors.Is(err, context.Canceled) {
			t.Errorf("limit %d: a third frame: %v", limit, err)
		}
	}
}

func TestLimit(t *testing.T) {
	p := NewPool(0, 1<<20)
	defer p.Close()
	if _, err := p.Acquire(t.Context(), 1<<20, 1<<20); !errors.Is(err, ErrLimit) {
		t.Fatalf("got %v, want ErrLimit", err)
	}
}

func TestCloseGivesEverythingBack(t *testing.T) {
	before := descriptors(t)
	p := NewPool(0, 0)
	p.Lend(mustAcquire(t, p, 10))
	mustAcquire(t, p, 10_000)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	if _, err := p.Acquire(t.Context(), 10, 10); err == nil {
		t.Error("a closed pool gave a frame")
	}
}

// TestPoolAgainstModel: with any releases, Acquire never returns a busy frame, and only exact releases count.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := NewPool(3, 0)
		defer p.Close()
		type key struct {
			ring, frame uint32
			generation  uint64
		}
		out := map[key]bool{}
		taken := func(ring, frame uint32) bool {
			for k := range out {
				if k.ring == ring && k.frame == frame {
					return true
				}
			}
			return false
		}
		rt.Repeat(map[string]func(*rapid.T){
			"acquire": func(rt *rapid.T) {
				need := rapid.SampledFrom([]int64{1, 4096, 9000}).Draw(rt, "need")
				f, came, err := p.try(need, need)
				if err != nil {
					rt.Fatal(err)
				}
				if came != nil {
					return
				}
				if taken(f.Ring.Number(), f.Number) {
					rt.Fatalf("frame %d of ring %d handed out twice", f.Number, f.Ring.Number())
				}
				p.Lend(f)
				out[key{f.Ring.Number(), f.Number, f.Generation}] = true
			},
			"release": func(rt *rapid.T) {
				k := key{
					rapid.Uint32Range(0, 3).Draw(rt, "ring"), rapid.Uint32Range(0, 4).Draw(rt, "frame"),
					rapid.Uint64Range(0, 4).Draw(rt, "generation"),
				}
				err := p.Release(k.ring, k.frame, k.generation)
				if out[k] != (err == nil) {
					rt.Fatalf("release of %+v: %v, lent %v", k, err, out[k])
				}
				delete(out, k)
			},
		})
	})
}

func mustAcquire(t *testing.T, p *Pool, need int64) Frame {
	t.Helper()
	f, err := p.Acquire(t.Context(), need, need)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
