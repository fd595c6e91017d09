package growth

import (
	"millrace"
	"millrace/sources/read/order"
)

// global returns the order of a listing's ordinals, nil if not all are known.
func (c *Change) global(l *Listing, eras millrace.Eras) *order.Global {
	counts := make([]uint64, len(l.Manifest.Shards))
	for i := range counts {
		var known bool
		if counts[i], known = l.ordinals(i, c.Piece, c.tables); !known {
			return nil
		}
	}
	return order.NewGlobal(c.Seed, counts).InEras(eras)
}

func (c *Change) blocks(l *Listing, eras millrace.Eras) *order.Blocks {
	plain := l.Manifest.Shuffle == millrace.InFileOrder
	return order.NewBlocks(c.Seed, plain, len(l.Manifest.Shards)).InEras(eras)
}

// isGlobal reports whether the source's ordinals are a permutation of all.
func (c *Change) isGlobal() bool { return c.Was.Manifest.Shuffle == millrace.Global }

// counts returns the command that counts the ordinals of all files that are there.
func (c *Change) counts() string {
	if c.Now.Manifest.Shuffle == millrace.Global && c.Piece == 0 {
		return "millrace index MIXTURE"
	}
	return "millrace index MIXTURE --lengths"
}

// uncounted is the error of a source in pieces whose earlier order cannot be made again.
func (c *Change) uncounted() error {
	return millrace.Errorf(millrace.ErrMismatch, "source %s: the index directory does not know the number of pieces "+
		"of documents in the files that it had when the state was saved: put these files alone in their place, run "+
		"`%s`, and then bring the new files back", c.Now.Manifest.Source, c.counts())
}

// nextEpoch returns the first epoch that is still unread.
func (c *Change) nextEpoch() (millrace.Epoch, error) {
	last := c.At.Ordinal - 1 // the last ordinal that was read, or begun
	if c.At.Begun {
		last++
	}
	if c.isGlobal() {
		g := c.global(c.Was, c.Eras)
		if g == nil {
			return 0, c.uncounted()
		}
		return g.EpochOf(last) + 1, nil
	}
	at := c.At.SeekPoint
	if last < at.Ordinal {
		if at.Ordinal == at.EpochStart {
			return at.Epoch, nil
		}
		return at.Epoch + 1, nil
	}
	_, at, known := c.walk(at, last)
	if !known { // the ordinal may be in a later epoch than the place that was reached
		return max(at.Epoch, c.At.Epoch) + 1, nil
	}
	return at.Epoch + 1, nil
}

// walk returns the shard of Was that holds an ordinal in a block order, and the start of the shard or of its rest. It
// begins at a seek point before the ordinal. known is false if it came to a shard that was not counted: then this shard
// or a later one holds the ordinal.
func (c *Change) walk(at millrace.SeekPoint, n millrace.Ordinal) (shard uint32, in millrace.SeekPoint, known bool) {
	b := c.blocks(c.Was, c.Eras)
	for {
		shard, count := b.ShardAt(at.Epoch, at.Shard)
		known = true
		if shard != millrace.RemovedShard {
			count, known = c.Was.ordinals(int(shard), 0, c.tables)
		}
		rest := millrace.Ordinal(count - min(at.Record, count))
		if !known || n < at.Ordinal+rest {
			return shard, at, known
		}
		before := at
		at.Ordinal += rest
		if at = b.AfterShard(at); at.Epoch != before.Epoch && before.EpochStart == at.Ordinal {
			return shard, before, true // an epoch without records: its files are empty
		}
	}
}

// IsGone reports whether an ordinal that was drawn is of a missing file.
func (c *Change) IsGone(n millrace.Ordinal) (bool, error) {
	shard := uint32(millrace.RemovedShard)
	if c.isGlobal() {
		g := c.global(c.Was, c.Eras)
		if g == nil {
			return false, c.uncounted()
		}
		_, at := g.Lookup().At(n)
		shard = at.Shard
	} else {
		in, at, known := c.walk(c.At.SeekPoint, n)
		if later := c.goneFrom(at); !known && later != "" {
			return false, millrace.Errorf(millrace.ErrMismatch, "source %s: a document that was drawn may be of the "+
				"missing file %s, because the index directory does not know the number of documents in file %s: run "+
				"`%s`", c.Now.Manifest.Source, later, c.Was.Manifest.Shards[in].Name, c.counts())
		}
		shard = in
	}
	return shard == millrace.RemovedShard || c.gone[shard], nil
}

// goneFrom returns the name of the first missing file from a place of a block order to the end of the newest epoch of
// which a document was drawn, empty if there is none.
func (c *Change) goneFrom(at millrace.SeekPoint) string {
	b := c.blocks(c.Was, c.Eras)
	for at.Epoch <= c.At.Epoch {
		if shard, _ := b.ShardAt(at.Epoch, at.Shard); shard != millrace.RemovedShard && c.gone[shard] {
			return c.Was.Manifest.Shards[shard].Name
		}
		at = b.AfterShard(at)
	}
	return ""
}
