package ledger

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"millrace"
	"millrace/checkpoint"
	pb "millrace/proto"
)

// FindStep returns a step in each attempt that sealed it, the newest attempt last.
func (l *Ledger) FindStep(step uint64) ([]Step, error) {
	var out []Step
	err := l.attempts(func(attempt uint32, first, last uint64) error {
		if step < first || step > last {
			return nil
		}
		e, ok, err := l.store.Entry(l.key(attempt, step))
		if err != nil || !ok {
			return err
		}
		found, err := l.describe(e, func(uint32, uint64) bool { return true })
		out = append(out, found)
		return err
	})
	return out, err
}

// FindOrdinal returns the steps that held segments of a source's ordinal in each attempt, the newest attempt last. It
// reads the steps between a few index entries, however long the run is.
//
// A step may be returned with Complete false and without a range of the source: its plan is gone, and its entry had no
// room for all sources. The step may hold the ordinal.
func (l *Ledger) FindOrdinal(source int, ordinal uint64) ([]Step, error) {
	var out []Step
	err := l.attempts(func(attempt uint32, first, last uint64) error {
		seen := first
		for at := (cursor{ordinal: ordinal}); ; {
			lower, upper, next, err := l.between(attempt, first, last, source, at)
			if err != nil {
				return err
			}
			found, err := l.scan(attempt, max(lower, seen), upper, uint32(source), ordinal)
			seen = upper
			if err != nil {
				return err
			}
			out = append(out, found...)
			if at = next; at.ordinal != ordinal || upper > last {
				return nil // the document ends before the index entry
			}
		}
	})
	return out, err
}

// Segments returns the segments of a source's ordinal in the steps whose plans are kept, by offset; of each offset that
// of the newest attempt.
func (l *Ledger) Segments(source int, ordinal uint64) (out []millrace.Segment, err error) {
	steps, err := l.FindOrdinal(source, ordinal)
	for _, s := range slices.Backward(steps) {
		a := s.Segments
		for i, offset := range a.GetOffset() {
			at, found := slices.BinarySearchFunc(out, offset, func(s millrace.Segment, offset uint32) int {
				return cmp.Compare(s.Offset, offset)
			})
			if found {
				continue
			}
			one := millrace.Segment{Source: uint32(source), Ordinal: millrace.Ordinal(ordinal),
				Epoch: millrace.Epoch(a.Epoch[i]), ID: millrace.SampleID{Shard: a.Shard[i], Record: a.Record[i]},
				Offset: offset, Length: a.Length[i], More: a.More[i]}
			if len(a.Untrained) > 0 {
				one.Untrained = a.Untrained[i]
			}
			out = slices.Insert(out, at, one)
		}
	}
	return out, err
}

var errEnough = errors.New("enough")

// attempts calls f with the first and the last step of each attempt that sealed any, in order.
func (l *Ledger) attempts(f func(attempt uint32, first, last uint64) error) error {
	for attempt := uint32(0); ; attempt++ {
		var first checkpoint.StepKey
		err := l.store.Ledger(l.key(attempt, 0), endOf(l.run.Stream), func(e checkpoint.Entry) error {
			first = e.Key
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			return err // nil: no attempt is left
		}
		attempt = first.Attempt
		last, _, err := l.store.EntryBefore(l.key(attempt, math.MaxUint64))
		if err != nil {
			return err
		}
		if err := f(attempt, first.Step, last.Key.Step); err != nil || attempt == math.MaxUint32 {
			return err
		}
	}
}

// between returns the steps that can hold segments from a place on: lower included, upper excluded. All draws before
// the index entry at lower end at or before the place. upper is the first index entry whose low-water mark is after the
// place. next is that low-water mark: a document that begins at the place and does not end before upper continues
// there.
func (l *Ledger) between(
	attempt uint32, first, last uint64, source int, at cursor,
) (lower, upper uint64, next cursor, err error) {
	begin, _, err := l.bisect(attempt, first, last, source, func(p position) bool { return at.before(p.drawn) })
	if err != nil {
		return 0, 0, next, err
	}
	_, end, err := l.bisect(attempt, first, last, source, func(p position) bool { return at.before(p.low) })
	lower, upper, next = first, last+1, cursor{ordinal: math.MaxUint64}
	if begin != nil {
		lower = max(first, begin.step-min(begin.back, begin.step))
	}
	if end != nil {
		upper, next = end.step, end.low
	}
	return lower, upper, next, err
}

// indexEntry is the position of a source at a step.
type indexEntry struct {
	step uint64
	position
}

// bisect returns the last index entry for which past is false and the first for which it is true; nil for none. Once
// past is true, it stays true.
func (l *Ledger) bisect(
	attempt uint32, first, last uint64, source int, past func(position) bool,
) (before, after *indexEntry, err error) {
	low, high := first, last+1 // past is false for all entries below low, true for all from high on
	for low < high {
		middle := low + (high-low)/2
		stored, ok, err := l.store.IndexEntryBefore(l.key(attempt, middle))
		if err != nil {
			return nil, nil, err
		}
		if !ok || stored.Key.Step < low {
			low = middle + 1
			continue
		}
		p, err := l.readPosition(stored, source)
		if err != nil {
			return nil, nil, err
		}
		found := &indexEntry{stored.Key.Step, p}
		if past(p) {
			after, high = found, stored.Key.Step
		} else {
			before, low = found, middle+1
		}
	}
	return before, after, nil
}

// scan returns the steps from lower to below upper that hold an ordinal.
func (l *Ledger) scan(attempt uint32, lower, upper uint64, source uint32, ordinal uint64) (out []Step, err error) {
	err = l.store.Ledger(l.key(attempt, lower), l.key(attempt, upper), func(stored checkpoint.Entry) error {
		e, err := decodeStored(stored)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(e.ranges, func(r *pb.OrdinalRange) bool { return r.Source == source })
		if at >= 0 && (ordinal < e.ranges[at].From || ordinal > e.ranges[at].To) || at < 0 && e.whole {
			return nil
		}
		found, err := l.describe(stored, func(s uint32, o uint64) bool { return s == source && o == ordinal })
		if err == nil && (len(found.Segments.Source) > 0 || !found.Complete) {
			out = append(out, found)
		}
		return err
	})
	return out, err
}

// describe returns a step with those of its segments that are wanted.
func (l *Ledger) describe(stored checkpoint.Entry, wanted func(source uint32, ordinal uint64) bool) (Step, error) {
	e, err := decodeStored(stored)
	if err != nil {
		return nil, err
	}
	key := stored.Key
	out := &pb.LedgerReply{
		Attempt:      key.Attempt,
		Step:         key.Step,
		Content:      e.Content[:],
		Placement:    e.Placement[:],
		Ranges:       e.ranges,
		Acknowledged: key.Step < l.run.Consumed[key.Attempt],
		Segments:     &pb.Assignments{},
	}
	if l.run.Changes != nil {
		if out.Changes, err = l.run.Changes(key.Attempt, key.Step); err != nil {
			return nil, err
		}
	}
	p, kept, err := ReadPlan(l.store, key)
	if err != nil || !kept {
		return out, err
	}
	out.Complete = true
	a, s := p.GetAssignments(), out.Segments
	for i := range a.GetSource() {
		if !wanted(a.Source[i], a.Ordinal[i]) {
			continue
		}
		s.Source = append(s.Source, a.Source[i])
		s.Ordinal = append(s.Ordinal, a.Ordinal[i])
		s.Epoch = append(s.Epoch, a.Epoch[i])
		s.Shard = append(s.Shard, a.Shard[i])
		s.Record = append(s.Record, a.Record[i])
		s.Offset = append(s.Offset, a.Offset[i])
		s.Length = append(s.Length, a.Length[i])
		s.More = append(s.More, a.More[i])
		s.Rank = append(s.Rank, a.Rank[i])
		s.Microbatch = append(s.Microbatch, a.Microbatch[i])
		s.Row = append(s.Row, a.Row[i])
		s.Start = append(s.Start, a.Start[i])
		if len(a.Untrained) > 0 {
			s.Untrained = append(s.Untrained, a.Untrained[i])
		}
		name := l.sourceName(a.Source[i])
		out.Sources, out.Ids = append(out.Sources, name), append(out.Ids, l.sampleName(a, i))
		out.Masked = append(out.Masked, l.masked[segmentKey{name, a.Ordinal[i], a.Offset[i]}])
	}
	return out, nil
}
