package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStale marks a release of a frame that is not lent, or that was lent in another generation.
var ErrStale = errors.New("stale release")

// ErrLimit marks an error if a ring would exceed the pool's limit.
var ErrLimit = errors.New("shared memory limit")

// Frame is the memory of one batch. The caller of Acquire may write to Bytes until it sends the batch to the trainer.
type Frame struct {
	Ring       *Ring
	Number     uint32
	Generation uint64 // counts the frame's uses, from 1
	Bytes      []byte
}

// Offset returns the frame's offset in its ring, in bytes.
func (f Frame) Offset() int64 { return f.Ring.stride * int64(f.Number) }

type state uint8

const (
	free state = iota
	filling
	lent
)

type place struct {
	state      state
	generation uint64
}

// shelf is a ring with the state of its frames.
type shelf struct {
	ring   *Ring
	places []place
	busy   int // frames that are not free
}

// Pool gives out the frames of one connection. It is safe for concurrent use.
type Pool struct {
	frames uint32 // of each ring; 0 chooses by size
	limit  int64  // bytes of one ring; 0 is none
	extra  uint32 // frames beyond the number that the size chooses
	shared bool   // the rings belong to a group

	mu      sync.Mutex
	shelves map[uint32]*shelf // the newest ring, and older ones with frames that are not free
	newest  *shelf
	rings   uint32 // made so far
	came    chan struct{}
	closed  bool
}

// NewPool returns a pool without memory. The first Acquire makes its first ring. frames is the number of frames of a
// ring; 0: 3 for frames of 1 MiB or more, else 8. limit is the largest size of a ring in bytes; 0: no limit.
func NewPool(frames uint32, limit int64) *Pool {
	return &Pool{frames: frames, limit: limit, shelves: map[uint32]*shelf{}, came: make(chan struct{})}
}

// Acquire returns a free frame of at least need bytes. It blocks until the trainer releases one. If need exceeds the
// frame size of the newest ring, Acquire makes a new ring. The new frames have max(room, need) bytes.
func (p *Pool) Acquire(ctx context.Context, need, room int64) (Frame, error) {
	for {
		f, came, err := p.try(need, max(room, need))
		if err != nil || came == nil {
			return f, err
		}
		select {
		case <-came:
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// try returns a frame, or a channel that is closed when a frame becomes free.
func (p *Pool) try(need, room int64) (Frame, chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return Frame{}, nil, errors.New("acquire frame: the pool is closed")
	}
	if p.newest == nil || p.newest.ring.stride < need {
		if err := p.grow(room); err != nil {
			return Frame{}, nil, err
		}
	}
	s := p.newest
	for i := range s.places {
		if s.places[i].state != free {
			continue
		}
		s.places[i].state = filling
		s.places[i].generation++
		s.busy++
		n := uint32(i)
		return Frame{Ring: s.ring, Number: n, Generation: s.places[i].generation, Bytes: s.ring.frame(n)}, nil, nil
	}
	return Frame{}, p.came, nil
}

func (p *Pool) grow(bytes int64) error {
	frames := p.frames
	if frames == 0 {
		frames = Frames(bytes) + p.extra
		for frames > least && p.limit > 0 && Stride(bytes)*int64(frames) > p.limit {
			frames--
		}
	}
	if size := Stride(bytes) * int64(frames); p.limit > 0 && size > p.limit {
		return fmt.Errorf("%w: %d frames of %d bytes are %d bytes, limits.sidecar_memory leaves %d for a rank: "+
			"raise it or lower micro_batch_size or sequence_length", ErrLimit, frames, Stride(bytes), size, p.limit)
	}
	r, err := newRing(p.rings, frames, bytes, p.shared)
	if err != nil {
		return err
	}
	old := p.newest
	p.rings++
	p.newest = &shelf{ring: r, places: make([]place, frames)}
	p.shelves[r.number] = p.newest
	if old != nil {
		return p.retire(old)
	}
	return nil
}

// retire gives an old ring's memory back if all its frames are free.
func (p *Pool) retire(s *shelf) error {
	if s == p.newest || s.busy > 0 {
		return nil
	}
	delete(p.shelves, s.ring.number)
	return s.ring.close()
}

// Lend marks a filling frame as lent to the trainer.
func (p *Pool) Lend(f Frame) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shelves[f.Ring.number]; s != nil {
		s.places[f.Number].state = lent
	}
}

// Release takes back a lent frame. The numbers may come from a client: if they name no lent frame, the error is
// ErrStale.
func (p *Pool) Release(ring, frame uint32, generation uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[ring]
	if s == nil || int64(frame) >= int64(len(s.places)) {
		return fmt.Errorf("%w: no frame %d of ring %d", ErrStale, frame, ring)
	}
	pl := &s.places[frame]
	if pl.state != lent || pl.generation != generation {
		return fmt.Errorf("%w: frame %d of ring %d, generation %d", ErrStale, frame, ring, generation)
	}
	pl.state = free
	s.busy--
	close(p.came)
	p.came = make(chan struct{})
	return p.retire(s)
}

// Close unmaps all rings. The trainer's own mapping stays valid. No caller may write to a frame after it.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for n, s := range p.shelves {
		errs = append(errs, s.ring.close())
		delete(p.shelves, n)
	}
	p.newest = nil
	return errors.Join(errs...)
}
