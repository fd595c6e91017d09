package decode

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"millrace"
	"millrace/sources"
)

// Entry is a slot of a span in reading order.
type Entry struct {
	record uint64
	start  uint32
	shard  uint32
	slot   uint32
}

// InFileOrder returns a span's slots in the order of their places in the files. It leaves out those of removed files,
// and those that the source's own filter refuses: no caller asks for their tokens. refused is Part.Refused of a span
// whose lengths are known, or nil.
func InFileOrder(slots []Slot, refused []uint32) []Entry {
	entries := make([]Entry, 0, len(slots))
	for i := range slots {
		if slots[i].Shard != millrace.RemovedShard && !IsRefused(refused, uint32(i)) {
			entries = append(entries, slots[i].entry(uint32(i)))
		}
	}
	sortEntries(entries)
	return entries
}

// Some returns the entries of some slots of a span, in the order of their places in the files.
func Some(slots []Slot, which []uint32) []Entry {
	entries := make([]Entry, len(which))
	for k, i := range which {
		entries[k] = slots[i].entry(i)
	}
	sortEntries(entries)
	return entries
}

func (s *Slot) entry(number uint32) Entry { return Entry{s.Record, s.Start, s.Shard, number} }

func sortEntries(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int {
		switch {
		case a.shard != b.shard:
			return cmp.Compare(a.shard, b.shard)
		case a.record != b.record:
			return cmp.Compare(a.record, b.record)
		case a.start != b.start:
			return cmp.Compare(a.start, b.start)
		}
		return cmp.Compare(a.slot, b.slot)
	})
}

// ReadEntries makes the part's documents from entries in file order, reading shard by shard. Adjacent records are read
// together.
func (d *Decoder) ReadEntries(ctx context.Context, entries []Entry) error {
	d.reserve(entries)
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].shard == entries[0].shard {
			n++
		}
		if err := d.readShard(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// reserve makes room for the tokens of entries, if their lengths are known. A large part gets memory of its own, which
// Finish need not copy.
func (d *Decoder) reserve(entries []Entry) {
	if !d.part.Keep || !d.part.Known {
		return
	}
	held, beside := 0, 0 // beside: of a document that is read whole, although a piece of it is held
	for _, e := range entries {
		s := &d.part.Slots[e.slot]
		n := s.Held(d.piece)
		held, beside = held+int(n), max(beside, int(s.Length-n))
	}
	if held+beside <= mostScratch {
		d.buf = slices.Grow(d.buf, held+beside)
	} else if d.isOwn = beside <= held/8; d.isOwn {
		d.buf = make([]uint32, 0, held+beside)
	}
}

// readShard reads records of one shard. If the format's decoder panics, or finds damage after the lengths were found,
// readShard tries the current record alone. It rejects the record if it fails again.
func (d *Decoder) readShard(ctx context.Context, entries []Entry) error {
	d.doing = d.src.BeginDecode(entries[0].shard)
	defer d.endActivity()
	o, err := d.src.Acquire(ctx, entries[0].shard)
	if err != nil {
		return err
	}
	defer d.src.Release(o)
	for len(entries) > 0 {
		entries, err = d.readNext(ctx, o, entries)
		if err == nil {
			continue
		}
		if !d.survives(err) {
			return err
		}
		n := d.sameRead(o, entries)
		if _, err = d.readNext(ctx, o, entries[:n]); err != nil {
			if !d.survives(err) {
				return err
			}
			failed := failedRecord(entries[0].record, err)
			if err := d.place(ctx, entries[0].shard, failed, appendSlots(nil, entries[:n])); err != nil {
				return err
			}
		}
		entries = entries[n:]
	}
	return nil
}

// readNext reads the first entries of an open shard that are read together, and returns those that it did not reach.
func (d *Decoder) readNext(ctx context.Context, o *sources.OpenShard, entries []Entry) ([]Entry, error) {
	defer d.giveRoom()
	n, err := d.beginRun(ctx, o, entries)
	if err != nil {
		return entries, err
	}
	rest, err := d.readRun(ctx, o, entries[:n])
	return entries[n-len(rest):], err
}

// survives reports whether a part continues after an error of one record. After a panic it continues, and survives logs
// the panic. After damage it continues only if the documents were offered, because plans may count on the other
// records.
func (d *Decoder) survives(err error) bool {
	var caught *sources.PanicError
	if errors.As(err, &caught) {
		d.src.Log().Warn("decoder panicked", "at", caught.What, "panic", caught.Value)
		d.src.Log().Debug("decoder panicked", "at", caught.What, "stack", string(caught.Stack))
		return true
	}
	return sources.IsDamage(err) && (d.part.Known || d.part.Serve != nil)
}

// failedRecord returns the bad record that replaces a record which failed although it was tried alone.
func failedRecord(number uint64, err error) *sources.Record {
	var caught *sources.PanicError
	reason := err.Error()
	if errors.As(err, &caught) {
		reason = "decoder failed: " + caught.Value
	}
	return &sources.Record{Number: number, Offset: -1, Err: millrace.Errorf(millrace.ErrBadSample, "%s", reason)}
}

// readRun reads entries of an open shard and returns those that it did not reach.
func (d *Decoder) readRun(ctx context.Context, o *sources.OpenShard, entries []Entry) ([]Entry, error) {
	all := entries
	take := func(r sources.Record) error {
		if err := o.HostFailure(&r); err != nil {
			return err
		}
		if len(entries) == 0 || r.Number != entries[0].record {
			return millrace.Errorf(millrace.ErrDamaged, "read %s: record %d came out of turn", o.Path(), r.Number)
		}
		n := d.sameRead(o, entries)
		d.record = r
		d.slots = appendSlots(d.slots[:0], entries[:n])
		err := d.place(ctx, entries[0].shard, &d.record, d.slots)
		entries = entries[n:]
		return err
	}
	what := func() string { return d.src.SampleName(entries[0].shard, entries[0].record) }
	err := sources.Fence(millrace.ErrBadSample, what, func() error {
		d.fail.Hit("loader/read/before")
		asking := sources.WithRoom(ctx, func(bytes int64) error { return d.takeRoom(ctx, bytes) })
		return d.readAll(asking, o, all, take)
	})
	if err == nil && len(entries) > 0 {
		err = millrace.Errorf(millrace.ErrDamaged, "read %s: record %d is missing", o.Path(), entries[0].record)
	}
	return entries, o.Explain(err)
}

// readAll reads the records of entries in file order, each once; or their pieces, if the shard reads them alone.
func (d *Decoder) readAll(ctx context.Context, o *sources.OpenShard, entries []Entry,
	take func(sources.Record) error) error {
	pieces, ok := d.pieceReader(o)
	if !ok {
		numbers := make([]uint64, 0, len(entries))
		for rest := entries; len(rest) > 0; rest = rest[d.sameRead(o, rest):] {
			numbers = append(numbers, rest[0].record)
		}
		return o.Read(ctx, numbers, take)
	}
	parts := make([]sources.DocumentPart, 0, len(entries))
	for rest := entries; len(rest) > 0; rest = rest[d.sameRead(o, rest):] {
		part := sources.DocumentPart{Record: rest[0].record, Start: rest[0].start, Length: d.piece + 1}
		parts = append(parts, part)
	}
	return pieces.ReadPieces(ctx, parts, take)
}

// pieceReader returns the shard's reader of pieces, if slots are pieces and it has one.
func (d *Decoder) pieceReader(o *sources.OpenShard) (r sources.PieceReader, ok bool) {
	if d.piece > 0 {
		r = o.Abilities().Pieces
	}
	return r, r != nil
}

// sameRead returns how many of the first entries one read serves: those of one record, or of one piece of it. A small
// source repeats within one span.
func (d *Decoder) sameRead(o *sources.OpenShard, entries []Entry) int {
	_, pieces := d.pieceReader(o)
	isSame := func(e Entry) bool {
		return e.record == entries[0].record && (!pieces || e.start == entries[0].start)
	}
	n := 1
	for n < len(entries) && isSame(entries[n]) {
		n++
	}
	return n
}

func appendSlots(slots []uint32, entries []Entry) []uint32 {
	for _, e := range entries {
		slots = append(slots, e.slot)
	}
	return slots
}
