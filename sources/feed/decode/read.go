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
	shard  uint32
	slot   uint32
}

// InFileOrder returns a span's slots in the order of their records in the files.
func InFileOrder(slots []Slot) []Entry {
	entries := make([]Entry, len(slots))
	for i, s := range slots {
		entries[i] = Entry{s.Record, s.Shard, uint32(i)}
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		switch {
		case a.shard != b.shard:
			return cmp.Compare(a.shard, b.shard)
		case a.record != b.record:
			return cmp.Compare(a.record, b.record)
		}
		return cmp.Compare(a.slot, b.slot)
	})
	return entries
}

// ReadEntries makes the part's documents from entries in file order, reading shard by shard. Records that lie together
// are read together.
func (d *Decoder) ReadEntries(ctx context.Context, entries []Entry) error {
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

// readShard reads records of one shard. If the format's decoder panics, or finds damage after the lengths were found,
// readShard tries the current record alone. It rejects the record if it fails again.
func (d *Decoder) readShard(ctx context.Context, entries []Entry) error {
	o, err := d.src.Acquire(ctx, entries[0].shard)
	if err != nil {
		return err
	}
	defer d.src.Release(o)
	for len(entries) > 0 {
		entries, err = d.readRun(ctx, o, entries)
		if err == nil {
			continue
		}
		if !d.survives(err) {
			return err
		}
		n := sameRecord(entries)
		if _, err = d.readRun(ctx, o, entries[:n]); err != nil {
			if !d.survives(err) {
				return err
			}
			failed := failedRecord(entries[0].record, err)
			if err := d.place(entries[0].shard, failed, appendSlots(nil, entries[:n])); err != nil {
				return err
			}
		}
		entries = entries[n:]
	}
	return nil
}

// survives reports whether a part goes on after an error of one record. After a panic it goes on, and survives logs the
// panic. After damage it goes on only if the documents were offered, because plans may count on the other records.
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
	numbers := make([]uint64, 0, len(entries))
	for i, e := range entries {
		if i == 0 || e.record != entries[i-1].record {
			numbers = append(numbers, e.record)
		}
	}
	take := func(r sources.Record) error {
		if err := o.HostFailure(&r); err != nil {
			return err
		}
		if len(entries) == 0 || r.Number != entries[0].record {
			return millrace.Errorf(millrace.ErrDamaged, "read %s: record %d came out of turn", o.Path(), r.Number)
		}
		n := sameRecord(entries)
		d.record = r
		d.slots = appendSlots(d.slots[:0], entries[:n])
		err := d.place(entries[0].shard, &d.record, d.slots)
		entries = entries[n:]
		return err
	}
	what := func() string { return d.src.SampleName(entries[0].shard, entries[0].record) }
	err := sources.Fence(millrace.ErrBadSample, what, func() error {
		d.fail.Hit("loader/read/before")
		return o.Read(ctx, numbers, take)
	})
	if err == nil && len(entries) > 0 {
		err = millrace.Errorf(millrace.ErrDamaged, "read %s: record %d is missing", o.Path(), entries[0].record)
	}
	return entries, o.Explain(err)
}

// sameRecord returns how many of the first entries have one record: a small source repeats within one span.
func sameRecord(entries []Entry) int {
	n := 1
	for n < len(entries) && entries[n].record == entries[0].record {
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
