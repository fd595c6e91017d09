package parquet

import (
	"slices"
	"sync"
)

// Kept keeps the readers that random reads of many shards used last, with the pages that they decoded. So their memory
// does not grow with the shards. It is safe for concurrent use. A nil Kept keeps none.
type Kept struct {
	most int64 // bytes

	mu    sync.Mutex
	bytes int64
	idle  []*rowReader // the last used one at the end
}

// NewKept returns a set that keeps pages of at most so many bytes.
func NewKept(most int64) *Kept { return &Kept{most: most} }

// take returns a reader of the shard, if possible one that has pages.
func (k *Kept) take(s *shard) *rowReader {
	if k == nil {
		return s.newRowReader()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range slices.Backward(k.idle) {
		if r.shard == s {
			k.remove(i)
			return r
		}
	}
	return s.newRowReader()
}

// give takes a reader back after a read that succeeded.
func (k *Kept) give(r *rowReader) {
	if k == nil {
		r.close()
		return
	}
	r.expect(nil)
	r.size = r.bytes()
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.size > k.most {
		return
	}
	for k.bytes+r.size > k.most {
		k.remove(0)
	}
	k.idle = append(k.idle, r)
	k.bytes += r.size
}

// forget drops the readers of a closed shard.
func (k *Kept) forget(s *shard) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range slices.Backward(k.idle) {
		if r.shard == s {
			k.remove(i)
		}
	}
}

// remove removes a reader; mu is held.
func (k *Kept) remove(i int) {
	k.bytes -= k.idle[i].size
	k.idle = slices.Delete(k.idle, i, i+1)
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
