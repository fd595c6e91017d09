package copies

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"

	"millrace/sources/store/openfiles"
)

// Reader unpacks frames for the shelves of a process. It is safe for concurrent use.
type Reader struct {
	mu   sync.Mutex
	dec  *zstd.Decoder // made by the first read
	pool sync.Pool     // of *scratch
}

// scratch is the memory of one read. It remembers its last frame for the next read, which often continues there.
type scratch struct {
	of     *Copy
	frame  int
	packed []byte
	bytes  []byte
}

// decoder returns the decoder that all reads share. It has no goroutines, and memory for each processor.
func (r *Reader) decoder() (*zstd.Decoder, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dec != nil {
		return r.dec, nil
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(FrameBytes))
	r.dec = dec
	return dec, err
}

// table has the places of a copy's frames.
type table struct {
	starts []int64 // of the frames in the file, and the end of the last one
	size   int64   // unpacked bytes
}

// readTable reads the table of a copy of that many bytes.
func readTable(from io.ReaderAt, bytes int64) (*table, error) {
	var foot [footBytes]byte
	if bytes < tableHead+footBytes {
		return nil, errors.New("it is too short")
	}
	if err := readFull(from, foot[:], bytes-footBytes); err != nil {
		return nil, err
	}
	frames := int64(binary.LittleEndian.Uint32(foot[:]))
	behind := bytes - frames*entryBytes - tableHead - footBytes
	if binary.LittleEndian.Uint32(foot[5:]) != footMagic || foot[4] != 0 || behind < 0 {
		return nil, errors.New("it does not end with its table")
	}
	entries := make([]byte, frames*entryBytes)
	if err := readFull(from, entries, behind+tableHead); err != nil {
		return nil, err
	}
	t := &table{starts: make([]int64, frames+1)}
	for i := range frames {
		packed := binary.LittleEndian.Uint32(entries[i*entryBytes:])
		unpacked := int64(binary.LittleEndian.Uint32(entries[i*entryBytes+4:]))
		if unpacked != FrameBytes && (i < frames-1 || unpacked > FrameBytes) || packed > 2*FrameBytes {
			return nil, fmt.Errorf("frame %d has a wrong size", i)
		}
		t.starts[i+1] = t.starts[i] + int64(packed)
		t.size += unpacked
	}
	if t.starts[frames] != behind {
		return nil, errors.New("its table does not fit its frames")
	}
	return t, nil
}

// Copy is an open copy. It is safe for concurrent use. Its file is closed when the process needs the descriptor, and
// opened again to be read.
type Copy struct {
	shelf *Shelf
	file  *openfiles.File
	path  string
	table *table
}

// Path returns the path of the copy.
func (c *Copy) Path() string { return c.path }

// Size returns the unpacked bytes.
func (c *Copy) Size() int64 { return c.table.size }

// Memory returns the bytes that the open copy holds.
func (c *Copy) Memory() int64 { return int64(8 * len(c.table.starts)) }

// Close implements io.Closer.
func (c *Copy) Close() error { return c.file.Close() }

// use opens the file for an act, if it is not open.
func (c *Copy) use(act func(*os.File) error) error {
	handle, err := c.file.Acquire()
	if err != nil {
		return err
	}
	defer handle.Release()
	err = act(handle.Opened.(*os.File))
	handle.Judge(err)
	return err
}

// packedBytes are the bytes of a copy's file.
type packedBytes struct{ of *Copy }

// ReadAt implements io.ReaderAt.
func (b packedBytes) ReadAt(p []byte, off int64) (n int, err error) {
	err = b.of.use(func(f *os.File) error {
		n, err = f.ReadAt(p, off)
		return err
	})
	return n, err
}

// ReadAt reads unpacked bytes. It implements io.ReaderAt.
func (c *Copy) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("read: negative offset")
	}
	s, ok := c.shelf.reader.pool.Get().(*scratch)
	if !ok {
		s = &scratch{}
	}
	defer c.shelf.reader.pool.Put(s)
	for n < len(p) {
		if off+int64(n) >= c.table.size {
			return n, io.EOF
		}
		at := off + int64(n)
		if err := s.load(c, int(at/FrameBytes)); err != nil {
			return n, err
		}
		n += copy(p[n:], s.bytes[at%FrameBytes:])
	}
	return n, nil
}

// load unpacks a frame, unless it is the last one.
func (s *scratch) load(c *Copy, frame int) error {
	if s.of == c && s.frame == frame {
		return nil
	}
	s.of = nil
	dec, err := c.shelf.reader.decoder()
	if err != nil {
		return err
	}
	start, end := c.table.starts[frame], c.table.starts[frame+1]
	if need := int(end - start); cap(s.packed) < need {
		s.packed = make([]byte, need)
	}
	s.packed = s.packed[:end-start]
	if err := readFull(packedBytes{c}, s.packed, start); err != nil {
		return err
	}
	s.bytes, err = dec.DecodeAll(s.packed, s.bytes[:0])
	if want := min(FrameBytes, c.table.size-int64(frame)*FrameBytes); err == nil && int64(len(s.bytes)) != want {
		err = errors.New("it has another size than the table says")
	}
	if err != nil {
		return fmt.Errorf("unpack frame %d: %w", frame, err)
	}
	s.of, s.frame = c, frame
	return nil
}

func readFull(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read at byte %d: %w", off+int64(n), err)
}
