package constructors

import (
	"sync"

	"millrace"
)

// Set holds a run's collators, one for each shape that its stages have. It is safe for concurrent use.
type Set struct {
	shapes []millrace.Shape
	pad    uint32

	mu   sync.Mutex
	made map[millrace.Shape]*Collator // those that were asked for
}

// NewSet returns the set of a run's shapes, the first of which is that of plans which name none; padMultiple is as for New.
func NewSet(shapes []millrace.Shape, padMultiple uint32) *Set {
	return &Set{shapes: shapes, pad: padMultiple, made: map[millrace.Shape]*Collator{}}
}

// Of returns the collator of a plan's microbatches, for the first context-parallel rank. An error wraps millrace.ErrMismatch: no stage of the run has
// such.
func (s *Set) Of(p *millrace.Plan) (*Collator, error) {
	for _, shape := range s.shapes {
		if (p.SequenceLength == 0 || p.SequenceLength == shape.SequenceLength) && (p.MicroBatch == 0 || p.MicroBatch == shape.MicroBatch) {
			return s.collator(shape), nil
		}
	}
	return nil, millrace.Errorf(millrace.ErrMismatch, "step %s: its microbatches are of %d sequences of %d tokens, no stage of the run has such", p.Step, p.MicroBatch, p.SequenceLength)
}

func (s *Set) collator(shape millrace.Shape) *Collator {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made[shape] == nil {
		s.made[shape] = New(shape, s.pad)
	}
	return s.made[shape]
}

// MaxBytes is the largest frame that any part of any of the shapes needs.
func (s *Set) MaxBytes() int64 {
	most := int64(0)
	for _, shape := range s.shapes {
		most = max(most, bare(shape, s.pad).MaxBytes())
	}
	return most
}
