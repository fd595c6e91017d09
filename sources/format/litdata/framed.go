package litdata

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sort"
	"sync"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
)

// A framed chunk begins with magic, u16 version, u16 flags, u32 items, u32 items of a frame and u32 frames. Then come
// one u32 offset more than items, counted in unpacked bytes of items, and of each frame: u32 first item, u32 items, u64
// place in the file, u32 packed bytes, u32 unpacked bytes.
const (
	framedMagic = "LDFZ01\x00\x00"
	countAt     = 12
	headSize    = 24
	frameSize   = 24
)

func isFramed(f sources.File) (bool, error) {
	magic := make([]byte, min(int64(len(framedMagic)), f.Size()))
	err := sources.ReadFull(f, magic, 0)
	return string(magic) == framedMagic, err
}

// frame is a part of the items that is packed together.
type frame struct {
	at     int64 // in the unpacked items
	size   int64 // unpacked bytes
	place  int64 // in the file
	packed int64 // bytes there
}

// openFramed opens a chunk whose items are packed in frames.
func openFramed(ctx context.Context, f sources.File, x *index, w *wants, limit int64) (sources.Shard, error) {
	if f.Size() < headSize+4 {
		return nil, misfit(f, "%d bytes are no chunk", f.Size())
	}
	head := make([]byte, headSize)
	if err := sources.ReadFull(f, head, 0); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	if v := le.Uint16(head[8:]); v != 1 {
		return nil, misfit(f, "version %d of packed frames, want 1", v)
	}
	offsets, behind, err := extents.ReadOffsetsOf(ctx, f, int64(le.Uint32(head[countAt:])), headSize)
	if err != nil {
		return nil, err
	}
	first, end := offsets.Bounds()
	if first != 0 {
		return nil, misfit(f, "its first item begins at byte %d, want 0", first)
	}
	if err := x.compare(f, found{items: int64(offsets.Count()), bytes: f.Size(), ids: end}); err != nil {
		return nil, err
	}
	u := &framedFile{File: f, total: end}
	if err := u.readFrames(offsets, behind, int64(le.Uint32(head[20:]))); err != nil {
		return nil, err
	}
	return &framed{file: u, Shard: extents.Shard{File: u, Table: offsets, Limit: limit, Names: x.readable(),
		New: func() extents.Decoder { return newDecoder(x, w) }}}, nil
}

// framed is a chunk whose items are packed in frames.
type framed struct {
	extents.Shard
	file *framedFile
}

var _ sources.Grainer = (*framed)(nil)

// Abilities implements sources.Shard.
func (s *framed) Abilities() sources.Abilities {
	a := s.Shard.Abilities()
	a.Grains, a.Memory = s, s
	return a
}

// Grain implements sources.Grainer.
func (s *framed) Grain() (int64, error) { return s.file.total / int64(max(len(s.file.frames), 1)), nil }

// Memory implements sources.Sized.
func (s *framed) Memory() int64 { return s.Shard.Memory() + 40*int64(len(s.file.frames)) }

// framedFile is the file of unpacked items. It is safe for concurrent use.
type framedFile struct {
	sources.File // packed
	frames       []frame
	total        int64
	pool         sync.Pool // of *frameReader
}

// readFrames reads the places of the frames. They lie behind each other, and hold all items, each in one frame.
func (u *framedFile) readFrames(offsets extents.Offsets, at, count int64) error {
	if count > (u.File.Size()-at)/frameSize {
		return misfit(u.File, "%d frames have places up to byte %d, and the file has %d", count, at+count*frameSize,
			u.File.Size())
	}
	table := make([]byte, count*frameSize)
	if err := sources.ReadFull(u.File, table, at); err != nil {
		return err
	}
	le := binary.LittleEndian
	next, total, items := at+count*frameSize, int64(0), uint64(0)
	for ; len(table) > 0; table = table[frameSize:] {
		place, packed, size := le.Uint64(table[8:]), int64(le.Uint32(table[16:])), int64(le.Uint32(table[20:]))
		if place != uint64(next) || packed > u.File.Size()-next {
			return misfit(u.File, "frame %d of %d bytes lies at byte %d, and the one before ends at %d", len(u.frames),
				packed, place, next)
		}
		if size > mostFrame || size > packed*mostRatio {
			return misfit(u.File, "%w", sources.Limited("write the set again with smaller chunks, or without "+
				"compression", "frame %d of %d bytes has %d unpacked", len(u.frames), packed, size))
		}
		first, n := uint64(le.Uint32(table)), uint64(le.Uint32(table[4:]))
		if first != items || n == 0 || n > offsets.Count()-items || !endsAt(offsets, items+n-1, total+size) {
			return misfit(u.File, "frame %d says that it has %d items from item %d on, and they do not fill it",
				len(u.frames), n, first)
		}
		items += n
		u.frames = append(u.frames, frame{at: total, size: size, place: next, packed: packed})
		next, total = next+packed, total+size
	}
	if next != u.File.Size() || total != u.total || items != offsets.Count() {
		return misfit(
			u.File,
			"its frames end at byte %d of %d and hold %d bytes of items, want %d",
			next,
			u.File.Size(),
			total,
			u.total,
		)
	}
	return nil
}

// endsAt reports whether an item ends at a byte.
func endsAt(offsets extents.Offsets, item uint64, at int64) bool {
	_, end := offsets.Extent(item)
	return end == at
}

// Size returns the unpacked bytes of all items.
func (u *framedFile) Size() int64 { return u.total }

// frameReader holds the frame that it unpacked last.
type frameReader struct {
	unpacker
	packed []byte
	plain  []byte
	index  int // of the frame
}

// ReadAt implements io.ReaderAt over the unpacked items.
func (u *framedFile) ReadAt(p []byte, off int64) (n int, err error) {
	r, ok := u.pool.Get().(*frameReader)
	if !ok {
		r = &frameReader{index: -1}
	}
	i := sort.Search(len(u.frames), func(i int) bool { return u.frames[i].at+u.frames[i].size > off })
	for ; n < len(p) && i < len(u.frames); i++ {
		if err := u.load(r, i); err != nil {
			return n, err
		}
		n += copy(p[n:], r.plain[off+int64(n)-u.frames[i].at:])
	}
	u.pool.Put(r)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// load unpacks a frame, if the reader does not hold it.
func (u *framedFile) load(r *frameReader, i int) error {
	if r.index == i {
		return nil
	}
	r.index = -1 // until the frame is whole
	frame := u.frames[i]
	if int64(cap(r.packed)) < frame.packed {
		r.packed = make([]byte, frame.packed)
	}
	if err := sources.ReadFull(u.File, r.packed[:frame.packed], frame.place); err != nil {
		return err
	}
	var err error
	r.plain, err = r.unpack(r.plain[:0], r.packed[:frame.packed], frame.size)
	if err == nil && int64(len(r.plain)) != frame.size {
		err = fmt.Errorf("it unpacks to %d bytes, want %d", len(r.plain), frame.size)
	}
	if err != nil {
		return millrace.Errorf(
			millrace.ErrDamaged,
			"read %s: frame %d at byte %d: %w",
			u.File.Name(),
			i,
			frame.place,
			err,
		)
	}
	r.index = i
	return nil
}
