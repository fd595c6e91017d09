package rows

import (
	"bufio"
	"slices"
	"sync"
)

// Windows keeps the stretches of files that random reads fetched last, and the decompressors and buffers of reads and
// scans, for the shards of many sources. So their memory does not grow with the shards, and a small shard costs no new
// decompressor. It is safe for concurrent use. A nil Windows keeps none.
type Windows struct {
	most  int
	limit int64

	mu    sync.Mutex
	bytes int64      // of idle
	idle  []*scratch // the last used one at the end
	scans []*scanMemory
}

// NewWindows returns a set that keeps at most `most` stretches, one for each goroutine that reads. Together they have
// at most about `bytes` bytes.
func NewWindows(most int, bytes int64) *Windows { return &Windows{most: max(most, 1), limit: bytes} }

// scratch is the memory of one random read. One goroutine uses it.
type scratch struct {
	shard  *shard // to which the bytes belong; nil after the shard was closed
	size   int64  // bytes of memory when it was given back
	plain  plainWindow
	frames frameWindow
}

// window returns the window of the shard's kind.
func (c *scratch) window() window {
	if c.shard.kind == plain {
		return &c.plain
	}
	return &c.frames
}

// assign gives the memory to another shard and forgets the bytes in it.
func (c *scratch) assign(s *shard) error {
	c.shard = s
	c.plain = plainWindow{f: s.f, buf: c.plain.buf[:0]}
	c.frames = frameWindow{shard: s, unpack: c.frames.unpack, buf: c.frames.buf[:0]}
	if s.kind == plain {
		return nil
	}
	return c.frames.unpack.assign(s.f, s.kind)
}

// take returns memory for a read of a shard: the shard's last bytes if they are kept, otherwise the memory that waits
// longest.
func (w *Windows) take(s *shard) (*scratch, error) {
	c := w.find(s)
	if c.shard == s {
		return c, nil
	}
	return c, c.assign(s)
}

func (w *Windows) find(s *shard) *scratch {
	fresh := &scratch{frames: frameWindow{unpack: &unpacker{}}}
	if w == nil {
		return fresh
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(w.idle) - 1; i >= 0; i-- {
		if w.idle[i].shard == s {
			return w.remove(i)
		}
	}
	if len(w.idle) < w.most {
		return fresh
	}
	return w.remove(0)
}

// remove removes memory that is idle and returns it; mu is held.
func (w *Windows) remove(i int) *scratch {
	c := w.idle[i]
	w.idle = slices.Delete(w.idle, i, i+1)
	w.bytes -= c.size
	return c
}

// bytes returns the memory of a scratch, without its decompressor.
func (c *scratch) bytes() int64 {
	return int64(cap(c.plain.buf) + cap(c.frames.buf) + cap(c.frames.unpack.packed))
}

// give takes the memory back after a read that succeeded.
func (w *Windows) give(c *scratch) {
	if w == nil {
		return
	}
	if c.size = c.bytes(); c.size > w.limit {
		c.plain.buf, c.frames.unpack.packed, c.size = nil, nil, 0
		c.frames = frameWindow{shard: c.shard, unpack: c.frames.unpack}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.idle) == w.most || len(w.idle) > 0 && w.bytes+c.size > w.limit {
		w.remove(0)
	}
	w.idle = append(w.idle, c)
	w.bytes += c.size
}

// forget makes the memory of a closed shard free for others.
func (w *Windows) forget(s *shard) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.idle {
		if c.shard == s {
			c.shard = nil
		}
	}
}

// The most bytes that the memory of a scan keeps for the next one.
const (
	mostFrame = 1 << 20 // of a decompressed frame, and of a packed one
	mostSlide = 2 << 20 // of the window of a zstd stream, which its decompressor keeps
)

// scanMemory is the memory of one scan of a shard. One goroutine uses it.
type scanMemory struct {
	unpack unpacker
	input  *bufio.Reader
	lines  []byte
	frame  []byte
}

// forScan returns memory for a scan of a shard.
func (w *Windows) forScan(s *shard) (*scanMemory, error) {
	m := w.takeScan()
	if m == nil {
		m = &scanMemory{lines: make([]byte, bufferBytes)}
	}
	return m, m.unpack.assign(s.f, s.kind)
}

// takeScan returns the memory of an earlier scan, or nil.
func (w *Windows) takeScan() *scanMemory {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.scans) - 1
	if last < 0 {
		return nil
	}
	m := w.scans[last]
	w.scans = w.scans[:last]
	return m
}

// giveScan takes the memory back after a scan.
func (w *Windows) giveScan(m *scanMemory) {
	m.unpack.f = nil
	if cap(m.unpack.packed) > mostFrame {
		m.unpack.packed = nil
	}
	if cap(m.frame) > mostFrame {
		m.frame = nil
	}
	if w == nil {
		m.unpack.close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.scans) < w.most {
		w.scans = append(w.scans, m)
		return
	}
	m.unpack.close()
}
