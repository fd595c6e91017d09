package feed

import "millrace/sources/read/feed/decode"

// A block whose text fits neither the file for texts nor the feed's share of the budget is read in parts: a scan of the
// whole block holds the records of some spans alone. The next part needs another scan. So memory stays within the
// budget. A smaller share costs more CPU time for the block.

// mostText returns the memory of a text that may always be held: of a part of a block, or of a small block.
func (r *blockReader) mostText() int64 { return max(r.memory.quota.Share()/2, decode.Least) }

// fits reports whether a text of so many bytes may be held as a whole.
func (r *blockReader) fits(bytes int64) bool {
	return bytes <= max(r.memory.quota.Share(), decode.Least)
}

// whole returns the wish for all records of a block, for which bytes were charged.
func (r *blockReader) whole(charge int64) decode.Wanted {
	return decode.Wanted{Most: max(charge, r.memory.quota.Share())}
}

// readPart reads the text of a span, and of the spans behind it that have room, of a block that does not fit. It
// returns nil if the reading has to wait.
func (r *blockReader) readPart(p *span, must, far bool) action {
	hi, charge := r.partFrom(p)
	if far {
		r.memory.roomForText(charge, p)
	} else {
		// Without room for the span's tokens, the part would only replace one whose spans have room.
		tokens := r.sizes.spanBytes(p)
		if !r.memory.room(charge+tokens, p, must) {
			return nil
		}
		r.memory.quota.Force(-tokens)
	}
	r.warnOfParts(p.block)
	act := r.beginText(p.block, far, charge)
	act.lo, act.hi = p.lo, hi
	return act
}

// partFrom returns the end of the part of a block that begins with a span, and about the bytes of its text.
func (r *blockReader) partFrom(p *span) (hi uint64, bytes int64) {
	b := p.block
	each := max(b.size.Raw/b.size.Records, 1)
	hi = p.hi
	for _, next := range b.spans {
		if next.lo == hi && int64((next.hi-p.lo)*each) <= r.mostText() {
			hi = next.hi
		}
	}
	return hi, int64((hi - p.lo) * each)
}

// only returns the set of a block's records that have stripe positions from lo to hi. It takes no lock.
func (r *blockReader) only(b *block, lo, hi uint64) func(record uint64) bool {
	records, first := b.order(r.src), b.seekPoint.Record
	set := make([]uint64, b.size.Records/64+1)
	for ; lo < hi; lo++ {
		n := records.slot(r.cursor.stripe.Ordinal(lo)).Record - first
		set[n/64] |= 1 << (n % 64)
	}
	return func(record uint64) bool {
		n := record - first
		return n < b.size.Records && set[n/64]>>(n%64)&1 == 1
	}
}

// warnOfParts logs once that texts are read in parts.
func (r *blockReader) warnOfParts(b *block) {
	if !r.warned {
		r.src.Log().Warn("blocks are read in parts, each time from the beginning, which costs CPU time: their text "+
			"has no room in the run directory; give its disk space, or raise limits.loader_memory",
			"block bytes", b.size.Raw, "part bytes", r.mostText())
	}
	r.warned = true
}
