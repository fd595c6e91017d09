package copies

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"millrace/internal/limits"
)

// FrameBytes is the content of every frame but the last. A random read of one record unpacks one frame or two.
const FrameBytes = 128 << 10

// The table of frames is a skippable frame of zstd. An entry has the packed and the unpacked bytes of a frame.
const (
	tableMagic = 0x184D2A5E
	tableHead  = 8
	entryBytes = 8
	footMagic  = 0x8F92EAB1
	footBytes  = 9
)

// mostFrames is the number of frames whose table fits into a skippable frame.
const mostFrames = (1<<32 - 1 - footBytes) / entryBytes

// lockWait is the time between two tries to lock a copy that another process writes.
const lockWait = 100 * time.Millisecond

// write writes the unpacked bytes that open returns as a copy at path.
func write(ctx context.Context, path string, again bool, open func() (io.ReadCloser, error), wrote func()) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	f, err := lockPart(ctx, part)
	if err != nil {
		return err
	}
	defer f.Close() // which unlocks it
	if _, err := os.Stat(path); err == nil && !again {
		return os.Remove(part)
	}
	unpacked, err := open()
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	defer unpacked.Close()
	w := &writer{to: f, wrote: wrote}
	if err := w.all(ctx, unpacked); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := place(f, path); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return nil
}

// place moves a whole copy to its path.
func place(f *os.File, path string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// lockPart opens an empty file that no other process has locked. What a process left that was killed is lost.
func lockPart(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isAt(f, path) {
			return f, f.Truncate(0)
		}
		if closed := f.Close(); err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(limits.Lock(path, err,
				"set index_dir to a directory of a file system with locks, or seekable_copies: false"), closed)
		}
		if err == nil {
			continue // the process that had locked it moved or removed it
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockWait):
		}
	}
}

// isAt reports whether an open file still has its name.
func isAt(f *os.File, path string) bool {
	is, err := f.Stat()
	if err != nil {
		return false
	}
	at, err := os.Stat(path)
	return err == nil && os.SameFile(is, at)
}

// writer writes one copy.
type writer struct {
	to    io.Writer
	wrote func()
	table []byte
}

// all writes the frames and their table.
func (w *writer) all(ctx context.Context, from io.Reader) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	defer enc.Close()
	content, packed := make([]byte, FrameBytes), []byte(nil)
	for last := false; !last; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(from, content)
		last = errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		if n == 0 {
			break
		}
		packed = enc.EncodeAll(content[:n], packed[:0])
		if _, err := w.to.Write(packed); err != nil {
			return err
		}
		w.table = binary.LittleEndian.AppendUint32(w.table, uint32(len(packed)))
		w.table = binary.LittleEndian.AppendUint32(w.table, uint32(n))
		w.wrote()
	}
	return w.end()
}

// end writes the table.
func (w *writer) end() error {
	frames := len(w.table) / entryBytes
	if frames > mostFrames {
		return fmt.Errorf("its file has more than %d TiB", int64(mostFrames)*FrameBytes>>40)
	}
	head := binary.LittleEndian.AppendUint32(nil, tableMagic)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(w.table)+footBytes))
	foot := binary.LittleEndian.AppendUint32(nil, uint32(frames))
	foot = append(foot, 0) // no checksums in the table: the frames have their own
	foot = binary.LittleEndian.AppendUint32(foot, footMagic)
	_, err := w.to.Write(slices.Concat(head, w.table, foot))
	return err
}
