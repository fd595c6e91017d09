package feed

import (
	"context"
	"errors"

	"millrace"
	"millrace/sources"
)

// globalIDs looks up the records of a span in global order.
func (f *Feed) globalIDs(p *span, slots []slot) {
	w := f.src.Global().Lookup()
	for i := range slots {
		_, id := w.At(f.stripe.Ordinal(p.lo + uint64(i)))
		slots[i].shard, slots[i].record = id.Shard, id.Record
	}
}

// split sorts a span's records by where they lie and cuts them into parts that decoders read side by side. What lies
// together is decoded once, as far as one span reaches.
func (m *decoder) split(ctx context.Context, p *span) error {
	entries := byPlace(p.slots)
	f := m.feed
	f.mu.Lock()
	parts := int(min(f.tokenBytes(p)/partBytes+1, int64(4*f.cfg.Parallel), int64(len(entries))))
	p.left, p.parts = parts, make([][]uint32, parts)
	for i := 1; i < parts; i++ {
		part := entries[i*len(entries)/parts : (i+1)*len(entries)/parts]
		f.ready = append(f.ready, func(ctx context.Context, m *decoder) error { return m.readPart(ctx, p, uint32(i), part) })
	}
	f.idle.Broadcast()
	f.mu.Unlock()
	return m.readPart(ctx, p, 0, entries[:len(entries)/parts])
}

// readPart reads a part's records, shard by shard.
func (m *decoder) readPart(ctx context.Context, p *span, part uint32, entries []entry) error {
	m.open(p, part)
	if err := m.readEntries(ctx, entries); err != nil {
		return err
	}
	m.finish()
	return nil
}

// readEntries reads records that are sorted by place, shard by shard.
func (m *decoder) readEntries(ctx context.Context, entries []entry) error {
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].shard == entries[0].shard {
			n++
		}
		if err := m.readShard(ctx, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// readShard reads records of one shard. Where the decoder panics, or the bytes are damaged that were whole when
// lengths were found, the record it was at is tried alone, and rejected if it was it.
func (m *decoder) readShard(ctx context.Context, entries []entry) error {
	o, err := m.feed.src.Acquire(ctx, entries[0].shard)
	if err != nil {
		return err
	}
	defer m.feed.src.Release(o)
	for len(entries) > 0 {
		entries, err = m.readRun(ctx, o, entries)
		if err == nil {
			continue
		}
		if !m.survives(err) {
			return err
		}
		n := sameRecord(entries)
		if _, err = m.readRun(ctx, o, entries[:n]); err != nil {
			if !m.survives(err) {
				return err
			}
			if err := m.place(entries[0].shard, failedRecord(entries[0].record, err), appendSlots(nil, entries[:n])); err != nil {
				return err
			}
		}
		entries = entries[n:]
	}
	return nil
}

// survives tells whether an error can be one record's alone. Damage can where lengths are known: plans may count on
// the other records.
func (m *decoder) survives(err error) bool {
	var caught *sources.PanicError
	if errors.As(err, &caught) {
		m.feed.src.Log().Warn("decoder panicked", "at", caught.What, "panic", caught.Value)
		m.feed.src.Log().Debug("decoder panicked", "at", caught.What, "stack", string(caught.Stack))
		return true
	}
	return sources.IsDamage(err) && (m.span.known || m.placed != nil)
}

// failedRecord is a record that could not be read although it was tried alone.
func failedRecord(number uint64, err error) *sources.Record {
	var caught *sources.PanicError
	reason := err.Error()
	if errors.As(err, &caught) {
		reason = "decoder failed: " + caught.Value
	}
	return &sources.Record{Number: number, Offset: -1, Err: millrace.Errorf(millrace.ErrBadSample, "%s", reason)}
}

// readRun reads entries of an open shard and returns those that it did not come to.
func (m *decoder) readRun(ctx context.Context, o *sources.OpenShard, entries []entry) ([]entry, error) {
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
		m.record = r
		m.slots = appendSlots(m.slots[:0], entries[:n])
		err := m.place(entries[0].shard, &m.record, m.slots)
		entries = entries[n:]
		return err
	}
	what := func() string { return m.feed.src.SampleName(entries[0].shard, entries[0].record) }
	err := sources.Fence(millrace.ErrBadSample, what, func() error {
		m.feed.cfg.Fail.Hit("loader/read/before")
		return o.Read(ctx, numbers, take)
	})
	if err == nil && len(entries) > 0 {
		err = millrace.Errorf(millrace.ErrDamaged, "read %s: record %d is missing", o.Path(), entries[0].record)
	}
	return entries, o.Explain(err)
}

// sameRecord returns how many of the first entries are of one record: a small source comes round within one span.
func sameRecord(entries []entry) int {
	n := 1
	for n < len(entries) && entries[n].record == entries[0].record {
		n++
	}
	return n
}

func appendSlots(slots []uint32, entries []entry) []uint32 {
	for _, e := range entries {
		slots = append(slots, e.slot)
	}
	return slots
}
