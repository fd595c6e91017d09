package growth

import (
	"millrace"
	"millrace/mixing"
	"millrace/sources/read/order"
)

// Numbers count the documents of the pass that is under way, in ordinals. They are about right if Sampled is set.
type Numbers struct {
	Known    bool   `json:"known"`                 // the orders of both lists of files are known
	Sampled  bool   `json:"sampled,omitempty"`     // counted in a sample, because the source is large
	Kept     uint64 `json:"documents"`             // of files that stay
	Twice    uint64 `json:"twice"`                 // of them: read in this pass, and read again
	Never    uint64 `json:"never"`                 // of them: not read in this pass
	Added    uint64 `json:"added,omitempty"`       // of new files
	Skipped  uint64 `json:"skipped,omitempty"`     // of them: not read in this pass, although it reads their files
	Later    uint32 `json:"from_pass,omitempty"`   // the pass, from 1, that reads them first; 0: this one, or Unread
	Unread   bool   `json:"no_pass,omitempty"`     // no pass reads the new files, because the source ends before
	Gone     uint64 `json:"gone,omitempty"`        // of missing files
	GoneLeft uint64 `json:"gone_unread,omitempty"` // of them: not read in this pass before
}

// mostCounted is the number of ordinals from which on a sample is counted.
const mostCounted = 1 << 21

// side is one pass in the order of one list of files.
type side struct {
	reads func(shard int) bool
	// ordinal returns the one at which the pass has the i-th ordinal of a shard that it reads.
	ordinal func(shard int, i uint64) millrace.Ordinal
}

// Count counts the documents that the rest of the pass reads twice or never. grown has the eras after Grow; without
// it, the source continues at its ordinal in the order of its new files.
func (c *Change) Count(grown *millrace.Eras) (n Numbers) {
	cursor := c.At.Ordinal
	if c.At.Begun {
		cursor++
	}
	from, eras := millrace.SeekPoint{}, millrace.Eras{}
	if grown != nil {
		from, eras = c.At.SeekPoint, *grown
	}
	before := c.side(c.Was, c.Eras, c.At.SeekPoint, cursor)
	after := c.side(c.Now, eras, from, cursor)
	if before == nil || after == nil {
		return n
	}
	n.Known = true
	dropped := map[millrace.Ordinal]bool{}
	for _, waits := range c.At.Waits {
		dropped[waits] = grown == nil
	}
	was := make([]int, len(c.Now.Manifest.Shards))
	for i := range was {
		was[i] = -1
	}
	total := uint64(0)
	for i, at := range c.stays {
		if !c.gone[i] {
			was[at] = i
		}
		count, _ := c.Was.ordinals(i, c.Piece, c.tables)
		total += count
	}
	stride := max(total/mostCounted, 1)
	n.Sampled = stride > 1
	for i, old := range was {
		count, _ := c.Now.ordinals(i, c.Piece, c.tables)
		isOld := old >= 0 && before.reads(old)
		for r := uint64(0); r < count; r += stride {
			weight := min(stride, count-r)
			if !isOld {
				n.Added += weight
				if after.reads(i) && after.ordinal(i, r) < cursor {
					n.Skipped += weight
				}
				continue
			}
			n.Kept += weight
			place := before.ordinal(old, r)
			read, again := place < cursor && !dropped[place], after.reads(i) && after.ordinal(i, r) >= cursor
			if read && again {
				n.Twice += weight
			} else if !read && !again {
				n.Never += weight
			}
		}
	}
	for i, gone := range c.gone {
		if !gone || !before.reads(i) {
			continue
		}
		count, _ := c.Was.ordinals(i, c.Piece, c.tables)
		n.Gone += count
		for r := uint64(0); r < count; r += stride {
			if before.ordinal(i, r) >= cursor {
				n.GoneLeft += min(stride, count-r)
			}
		}
	}
	if grown != nil && len(c.added) > 0 {
		n.Later = 1
		if len(eras.From) > 0 {
			n.Later += uint32(eras.From[len(eras.From)-1])
		}
		if last := c.Seed.Epochs; last > 0 && n.Later > last {
			n.Later, n.Unread = 0, true
		}
	}
	return n
}

// side returns the pass that holds a cursor in the order of a listing, nil if that order is not known. from is a seek
// point before the cursor.
func (c *Change) side(l *Listing, eras millrace.Eras, from millrace.SeekPoint, cursor millrace.Ordinal) *side {
	if l.Manifest.Shuffle != millrace.Global {
		return c.blockSide(l, eras, from, cursor)
	}
	g := c.global(l, eras)
	if g == nil {
		return nil
	}
	e, lookup := g.EpochOf(cursor), g.Lookup()
	firsts, has := make([]uint64, len(l.Manifest.Shards)), make([]bool, len(l.Manifest.Shards))
	for i := range firsts {
		firsts[i], has[i] = g.First(e, i)
	}
	return &side{
		reads:   func(shard int) bool { return has[shard] },
		ordinal: func(shard int, i uint64) millrace.Ordinal { return lookup.Ordinal(e, firsts[shard]+i) },
	}
}

// blockSide is side for block orders.
func (c *Change) blockSide(l *Listing, eras millrace.Eras, at millrace.SeekPoint, cursor millrace.Ordinal) *side {
	b := c.blocks(l, eras)
	counts := make([]uint64, len(l.Manifest.Shards))
	tables := make([]order.Table, len(counts))
	for i := range counts {
		var known bool
		if counts[i], known = l.ordinals(i, 0, c.tables); !known {
			return nil
		}
		if tables[i], known = c.tables[l.Manifest.Shards[i].Digest]; !known && !b.Plain {
			return nil
		}
	}
	in := block{shard: -1}
	places := make(map[int]millrace.SeekPoint, len(counts)) // of the shards' beginnings in the pass
	at = millrace.SeekPoint{Ordinal: at.EpochStart, EpochStart: at.EpochStart, Epoch: at.Epoch}
	for {
		shard, count := b.ShardAt(at.Epoch, at.Shard)
		if shard != millrace.RemovedShard {
			places[int(shard)], count = at, counts[shard]
		}
		e, start := at.Epoch, at.EpochStart
		at.Ordinal += millrace.Ordinal(count)
		if at = b.AfterShard(at); at.Epoch == e {
			continue
		}
		if cursor < at.Ordinal || at.Ordinal == start {
			break
		}
		clear(places)
	}
	return &side{
		reads: func(shard int) bool { _, ok := places[shard]; return ok },
		ordinal: func(shard int, i uint64) millrace.Ordinal {
			if b.Plain {
				return places[shard].Ordinal + millrace.Ordinal(i)
			}
			if shard != in.shard || i < in.first || i >= in.first+in.perm.Len() {
				in = enter(b, places[shard], tables[shard], shard, i)
			}
			return places[shard].Ordinal + millrace.Ordinal(in.first+in.perm.Inverse(i-in.first))
		},
	}
}

// block is the block of a shard that was asked for last.
type block struct {
	shard int
	first uint64 // its first record
	perm  mixing.Permutation
}

// enter returns the block that holds a record of a shard.
func enter(b *order.Blocks, at millrace.SeekPoint, t order.Table, shard int, record uint64) block {
	in := block{shard: shard}
	for i, size := range t {
		if record < in.first+size.Records {
			at.Block = uint32(i)
			in.perm, _ = b.Permutation(at, size.Records)
			return in
		}
		in.first += size.Records
	}
	return in
}
