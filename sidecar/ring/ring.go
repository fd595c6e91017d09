package ring

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	page     = 4 << 10
	hugePage = 2 << 20
	large    = 1 << 20 // rings of frames of this size or more have the fewest frames
	fewest   = 3       // held by the trainer, ready, filling
	most     = 8
	least    = 2 // within a limit: one is filled while the trainer holds the other
)

// seals protect the size of a ring, and themselves, from its trainer.
const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL

// Ring is one memfd of equal frames. Its owner is a Pool.
type Ring struct {
	number uint32
	frames uint32
	stride int64
	memory []byte
	file   *os.File
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

// newRing makes, seals, maps and touches a memfd.
func newRing(number, frames uint32, bytes int64) (*Ring, error) {
	stride := Stride(bytes)
	size := stride * int64(frames)
	fd, err := unix.MemfdCreate("millrace-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create memfd: %w: %w", ErrMemory, err)
	}
	file := os.NewFile(uintptr(fd), "millrace-ring")
	r := &Ring{number: number, frames: frames, stride: stride, file: file}
	if err := r.open(fd, size); err != nil {
		return nil, errors.Join(
			fmt.Errorf("make ring of %d frames of %d bytes: %w: %w", frames, stride, ErrMemory, err),
			r.close(),
		)
	}
	return r, nil
}

func (r *Ring) open(fd int, size int64) error {
	if err := unix.Ftruncate(fd, size); err != nil {
		return fmt.Errorf("size memfd: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	memory, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map memfd: %w", err)
	}
	r.memory = memory
	return touch(memory)
}

// touch makes every page present. On kernels before 5.14, which lack MADV_POPULATE_WRITE, it writes to each page.
func touch(memory []byte) error {
	// Huge pages are optional: most systems disable them for shared memory.
	_ = unix.Madvise(memory, unix.MADV_HUGEPAGE)
	err := unix.Madvise(memory, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) {
		for i := 0; i < len(memory); i += page {
			memory[i] = 0
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf(
			"touch %d bytes of shared memory (raise the memory limit of this process or lower the batch size): %w",
			len(memory),
			err,
		)
	}
	return nil
}

// Number counts a pool's rings from 0.
func (r *Ring) Number() uint32 { return r.number }

// Len returns the number of frames.
func (r *Ring) Len() uint32 { return r.frames }

// Stride returns the distance from one frame to the next, in bytes.
func (r *Ring) Stride() int64 { return r.stride }

// Size returns the size of the whole ring in bytes.
func (r *Ring) Size() int64 { return r.stride * int64(r.frames) }

// Fd returns the descriptor of the memfd, to be sent to the trainer. The ring owns it. It is valid as long as the ring
// has a frame that is not free.
func (r *Ring) Fd() int { return int(r.file.Fd()) }

func (r *Ring) frame(n uint32) []byte {
	at := r.stride * int64(n)
	return r.memory[at : at+r.stride : at+r.stride]
}

func (r *Ring) close() error {
	var err error
	if r.memory != nil {
		err = unix.Munmap(r.memory)
		r.memory = nil
	}
	return errors.Join(err, r.file.Close())
}
