package planner

import "millrace"

// Names for the tests in package planner_test.
const (
	MaxBins   = maxBins
	OwnFilter = ownFilter
)

func (s *Spec) Units(tokens uint32) uint32 { return s.units(tokens) }

// Halved returns the number of times that the row of a segment of so many tokens is halved in the step at a place.
func (s *Spec) Halved(step millrace.Step, tokens uint64, length uint32) int {
	in, _ := s.StageAt(step, tokens)
	w := s.packWindow(&in, 1, true)
	return w.Halved(s.units(length))
}
