package decode

import (
	"context"
	"slices"
	"time"

	"millrace/sources"
)

// serveGrace is the longest time for which a large document keeps its room while it is served. The receiver may wait
// for another document, which needs room.
const serveGrace = 100 * time.Millisecond

// idBytes is the memory of a token.
const idBytes = 4

// takeRoom waits for room if a record of `bytes` bytes is large and has none.
func (d *Decoder) takeRoom(ctx context.Context, bytes int64) (err error) {
	if d.give == nil && bytes > sources.LargeBytes {
		d.give, err = d.large.Take(ctx, bytes, d.src.SampleBytes())
	}
	return err
}

// giveRoom ends the use of a large record: its memory is free before the next one gets room. Kept tokens stay.
func (d *Decoder) giveRoom() {
	if d.give == nil {
		return
	}
	d.record, d.rec, d.tokens = sources.Record{}, nil, nil
	if !d.part.Keep {
		d.buf = nil
	}
	d.give()
	d.give = nil
}

// beginRun returns how many of the first entries are read together, and takes room for them. A record that is known to
// be large is read alone, because formats take memory for it before they pass it on.
func (d *Decoder) beginRun(ctx context.Context, o *sources.OpenShard, entries []Entry) (int, error) {
	if _, pieces := d.pieceReader(o); pieces {
		return len(entries), nil
	}
	if n := d.knownBytes(entries[0].slot); n > sources.LargeBytes {
		return d.sameRead(o, entries), d.takeRoom(ctx, n)
	}
	n := 1
	for n < len(entries) && d.knownBytes(entries[n].slot) <= sources.LargeBytes {
		n++
	}
	return n, nil
}

// knownBytes returns the memory of a record's tokens, 0 if their number is not known. A text mostly takes about the
// same.
func (d *Decoder) knownBytes(slot uint32) int64 {
	switch {
	case d.part.Known:
		return idBytes * int64(d.part.Slots[slot].Length)
	case d.part.Lengths != nil && d.part.Lengths[slot] != Unknown:
		return idBytes * int64(d.part.Lengths[slot])
	}
	return 0
}

// growTo makes room in buf for the tokens of a slot's document that is known to be large. As buf grows by itself, it is
// in memory twice.
func (d *Decoder) growTo(slot uint32) {
	if n := d.knownBytes(slot); n > sources.LargeBytes {
		d.buf = slices.Grow(d.buf, int(n/idBytes))
	}
}
