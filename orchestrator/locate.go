package orchestrator

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/checkpoint"
)

// Locate returns the ordinals under which a sample, named as in a batch's segments, may stand in a sealed step, rising: by the inverse of the
// source's order where that is known, else those of the plans that are kept.
func (l *Ledger) Locate(source int, name string) ([]uint64, error) {
	if l.inverse == nil {
		return l.search(source, name)
	}
	m := l.manifest(source)
	id, ok := m.Sample(name)
	if !ok {
		return nil, millrace.Errorf(millrace.ErrInvalid, "source %s has no file of sample %q: an id looks like %s", m.Source, name, m.SampleName(millrace.SampleID{}))
	}
	below, err := l.drawn(source)
	if err != nil {
		return nil, err
	}
	at, known := l.inverse(l.identity, m, id, millrace.Ordinal(below))
	if !known {
		return l.search(source, name)
	}
	out := make([]uint64, len(at))
	for i, n := range at {
		out[i] = uint64(n)
	}
	return out, nil
}

// drawn is a bound of the ordinals that sealed steps hold of a source, over all attempts.
func (l *Ledger) drawn(source int) (below uint64, err error) {
	err = l.attempts(func(attempt uint32, first, last uint64) error {
		post, ok, err := l.store.IndexEntryBefore(l.key(attempt, last))
		if err != nil {
			return err
		}
		if ok {
			stands, err := standIn(post.Body, source, len(l.pinned))
			if err != nil {
				return fmt.Errorf("index entry %s: %w: %w", post.Key, err, checkpoint.ErrCorrupt)
			}
			below, first = max(below, stands.drawn.ordinal+1), max(first, post.Key.Step-min(stands.back, post.Key.Step))
		}
		return l.store.Ledger(l.key(attempt, first), l.key(attempt, last+1), func(stored checkpoint.Entry) error {
			e, err := decodeEntry(stored.Digest)
			if err != nil {
				return fmt.Errorf("read ledger entry %s: %w: %w", stored.Key, err, checkpoint.ErrCorrupt)
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
				return err // plans below are gone as well
			}
			a := p.GetAssignments()
			for i := range a.GetSource() {
				if int(a.Source[i]) == source && l.name(a, i) == name && !slices.Contains(out, a.Ordinal[i]) {
					out = append(out, a.Ordinal[i])
				}
			}
		}
		return nil
	})
	slices.Sort(out)
	return out, err
}
