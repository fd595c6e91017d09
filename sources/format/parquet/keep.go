package parquet

import (
	"slices"
	"sync"
)

// Pages keeps the readers that random reads of many shards used last, with the pages that they decoded. So their memory
// does not grow with the shards. It is safe for concurrent use. A nil Pages keeps none.
type Pages struct {
	most int64 // bytes

	mu    sync.Mutex
	bytes int64
	idle  []*rowReader // the last used one at the end
}

// NewPages returns a set that keeps pages of at most `most` bytes together.
func NewPages(most int64) *Pages { return &Pages{most: most} }

// take returns a reader of the shard, if possible one that has pages.
func (p *Pages) take(s *shard) *rowReader {
	if p == nil {
		return s.newRowReader()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range slices.Backward(p.idle) {
		if r.shard == s {
			p.remove(i)
			return r
		}
	}
	return s.newRowReader()
}

// give takes a reader back after a read that succeeded.
func (p *Pages) give(r *rowReader) {
	if p == nil {
		r.close()
		return
	}
	r.expect(nil)
	r.size = r.bytes()
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.size > p.most {
		return
	}
	for p.bytes+r.size > p.most {
		p.remove(0)
	}
	p.idle = append(p.idle, r)
	p.bytes += r.size
}

// forget drops the readers of a closed shard.
func (p *Pages) forget(s *shard) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range slices.Backward(p.idle) {
		if r.shard == s {
			p.remove(i)
		}
	}
}

// remove removes a reader; mu is held.
func (p *Pages) remove(i int) {
	p.bytes -= p.idle[i].size
	p.idle = slices.Delete(p.idle, i, i+1)
}

// The memory of a column's reader beside its pages, and that of a zstd decoder.
const (
	readerBytes = 4 << 10
	zstdBytes   = 512 << 10
)

// bytes returns the memory of a reader.
func (r *rowReader) bytes() int64 {
	n := int64(0)
	r.columns(func(c *reader) { n += c.bytes() })
	for _, o := range r.others {
		for _, l := range o.leaves {
			n += l.bytes()
		}
	}
	return n
}

func (r *reader) bytes() int64 {
	n := readerBytes + cap(r.raw.buf) + cap(r.near.buf) + cap(r.plain) + cap(r.dict) + 4*cap(r.levels) +
		24*cap(r.dense) + 24*cap(r.values) + 4*cap(r.codes) + cap(r.single.plain) + cap(r.single.packed) +
		24*cap(r.dec.dictionary) + 4*cap(r.dec.indices) +
		cap(r.dec.fixed.bytes) + 4*cap(r.dec.fixed.bits) + 4*cap(r.dec.fixed.ints) + 8*cap(r.dec.fixed.longs) +
		4*cap(r.dec.strings.lengths) + 4*cap(r.dec.strings.prefixes) + cap(r.dec.strings.joined)
	if r.unpack != nil && r.unpack.zstd != nil {
		n += zstdBytes
	}
	return int64(n)
}
