package ledger

import (
	"slices"

	"millrace"
	"millrace/checkpoint"
)

// locate returns the ordinals, ascending, under which sealed steps may hold a sample. name is the sample's id as
// batches show it. If the order of the source cannot be inverted, only the plans that are kept are searched.
func (l *Ledger) locate(source int, name string) ([]uint64, error) {
	if l.run.Inverse == nil {
		return l.search(source, name)
	}
	m := l.manifest(source)
	id, ok := m.Sample(name)
	if !ok {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"find sample %q: source %s has no such file: an id looks like %s", name, m.Source,
			m.SampleName(millrace.SampleID{}))
	}
	below, err := l.DrawnBelow(source)
	if err != nil {
		return nil, err
	}
	at, known := l.run.Inverse(l.run.Identity, m, id, millrace.Ordinal(below))
	if !known {
		return l.search(source, name)
	}
	out := make([]uint64, len(at))
	for i, n := range at {
		out[i] = uint64(n)
	}
	return out, nil
}

// DrawnBelow returns an upper bound (excluded) of the ordinals of a source that sealed steps hold, over all attempts.
func (l *Ledger) DrawnBelow(source int) (below uint64, err error) {
	err = l.attempts(func(attempt uint32, first, last uint64) error {
		stored, ok, err := l.store.IndexEntryBefore(l.key(attempt, last))
		if err != nil {
			return err
		}
		if ok {
			p, err := l.readPosition(stored, source)
			if err != nil {
				return err
			}
			below, first = max(below, p.drawn.ordinal+1), max(first, stored.Key.Step-min(p.back, stored.Key.Step))
		}
		return l.store.Ledger(l.key(attempt, first), l.key(attempt, last+1), func(stored checkpoint.Entry) error {
			e, err := decodeStored(stored)
			if err != nil {
				return err
			}
			for _, r := range e.ranges {
				if int(r.Source) == source {
					below = max(below, r.To+1)
				}
			}
			return nil
		})
	})
	return below, err
}

// search looks a sample up in the plans that are kept.
func (l *Ledger) search(source int, name string) ([]uint64, error) {
	var out []uint64
	err := l.attempts(func(attempt uint32, first, last uint64) error {
		for step := last + 1; step > first; step-- {
			p, ok, err := ReadPlan(l.store, l.key(attempt, step-1))
			if err != nil || !ok {
				return err // older plans are gone as well
			}
			a := p.GetAssignments()
			for i := range a.GetSource() {
				if int(a.Source[i]) == source && l.sampleName(a, i) == name && !slices.Contains(out, a.Ordinal[i]) {
					out = append(out, a.Ordinal[i])
				}
			}
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}
