package ring

import (
	"errors"
	"fmt"

	"millrace/internal/memfd"
)

const (
	page     = 4 << 10
	hugePage = 2 << 20
	large    = 1 << 20 // rings of frames of this size or more have the fewest frames
	fewest   = 3       // held by the trainer, ready, filling
	most     = 8
	least    = 2 // within a limit: one is filled while the trainer holds the other
)

// Ring is one memfd of equal frames. Its owner is a Pool.
type Ring struct {
	number uint32
	frames uint32
	stride int64
	shared bool // several connections map it, and only read it
	memory *memfd.Memory
}

// Frames returns the default number of frames of a ring, for frames of the given size in bytes.
func Frames(bytes int64) uint32 {
	if bytes >= large {
		return fewest
	}
	return most
}

// Stride returns the distance in bytes from one frame to the next: whole pages, or whole huge pages if these add at
// most an eighth.
func Stride(bytes int64) int64 {
	if bytes >= 8*hugePage {
		return roundUp(bytes, hugePage)
	}
	return roundUp(max(bytes, 1), page)
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }

// ErrMemory marks an error if the system gives this process no shared memory. Another process may get it.
var ErrMemory = errors.New("no shared memory")

// sharedNumbers is the bit in the numbers of shared rings. A connection has rings of its own too.
const sharedNumbers = 1 << 31

// IsShared reports whether a number is that of a shared ring.
func IsShared(number uint32) bool { return number&sharedNumbers != 0 }

// newRing makes and touches the memory of a ring.
func newRing(number, frames uint32, bytes int64, shared bool) (*Ring, error) {
	stride, create := Stride(bytes), memfd.Create
	if shared {
		number, create = number|sharedNumbers, memfd.CreateReadOnly
	}
	memory, err := create("ring", stride*int64(frames))
	if err == nil {
		if err = memory.Populate(); err != nil {
			err = errors.Join(err, memory.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make ring of %d frames of %d bytes: %w: %w", frames, stride, ErrMemory, err)
	}
	return &Ring{number: number, frames: frames, stride: stride, shared: shared, memory: memory}, nil
}

// Number counts a pool's rings from 0. The numbers of shared rings count from 1<<31.
func (r *Ring) Number() uint32 { return r.number }

// Shared reports whether the ring belongs to a group. Its trainers can only read it.
func (r *Ring) Shared() bool { return r.shared }

// Len returns the number of frames.
func (r *Ring) Len() uint32 { return r.frames }

// Stride returns the distance from one frame to the next, in bytes.
func (r *Ring) Stride() int64 { return r.stride }

// Size returns the size of the whole ring in bytes.
func (r *Ring) Size() int64 { return r.stride * int64(r.frames) }

// Fd returns the descriptor of the memfd, to be sent to the trainer. The ring owns it. It is valid as long as the ring
// has a frame that is not free.
func (r *Ring) Fd() int { return r.memory.Fd() }

func (r *Ring) frame(n uint32) []byte {
	at := r.stride * int64(n)
	return r.memory.Bytes[at : at+r.stride : at+r.stride]
}

func (r *Ring) close() error { return r.memory.Close() }
