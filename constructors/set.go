package constructors

import (
	"sync"

	"millrace"
)

// Set holds a run's collators, one for each shape of its stages. It is safe for concurrent use.
type Set struct {
	shapes []millrace.Shape
	bySize map[size]millrace.Shape
	pad    uint32

	mu   sync.Mutex
	made map[millrace.Shape]*Collator // made on demand
}

// size is the number of rows of a microbatch, and their length.
type size struct{ rows, length uint32 }

// NewSet returns the set of a run's shapes. A plan that names no shape has the first one. For padMultiple, see New.
func NewSet(shapes []millrace.Shape, padMultiple uint32) *Set {
	s := &Set{shapes: shapes, pad: padMultiple, bySize: make(map[size]millrace.Shape, len(shapes)),
		made: map[millrace.Shape]*Collator{}}
	for _, shape := range shapes {
		s.bySize[size{shape.MicroBatch, shape.SequenceLength}] = shape
	}
	return s
}

// Of returns the collator of a plan's microbatches, for the first context-parallel rank. It returns an error with the
// mark millrace.ErrMismatch if no stage of the run has the plan's shape.
func (s *Set) Of(p *millrace.Plan) (*Collator, error) {
	if p.SequenceLength == 0 && p.MicroBatch == 0 && len(s.shapes) > 0 {
		return s.collator(s.shapes[0]), nil
	}
	if shape, ok := s.bySize[size{p.MicroBatch, p.SequenceLength}]; ok {
		return s.collator(shape), nil
	}
	return nil, millrace.Errorf(millrace.ErrMismatch,
		"build step %s: its microbatches have %d sequences of %d tokens, and no stage of the run has this shape",
		p.Step, p.MicroBatch, p.SequenceLength)
}

func (s *Set) collator(shape millrace.Shape) *Collator {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made[shape] == nil {
		s.made[shape] = New(shape, s.pad)
	}
	return s.made[shape]
}

// MaxBytes returns the size of the largest frame that any part of any shape needs, in bytes.
func (s *Set) MaxBytes() int64 {
	most := int64(0)
	for _, shape := range s.shapes {
		most = max(most, bare(shape, s.pad).MaxBytes())
	}
	return most
}
