package planner

import (
	"encoding/base64"

	"millrace"
)

// What the tests in package planner_test use beside the exports.
const (
	CarriedNext = carriedNext
	DeltaPlain  = deltaPlain
	MaxBins     = maxBins
	OwnFilter   = ownFilter
	SumBytes    = sumBytes
)

func CompactText() *base64.Encoding        { return compactText() }
func LengthOf(list []Carried) uint64       { return lengthOf(list) }
func Sum(b []byte) []byte                  { return sum(b) }
func (s *Spec) Units(tokens uint32) uint32 { return s.units(tokens) }

// Halved returns how often the rows of a segment of so many tokens are halved in the step at a place.
func (s *Spec) Halved(step millrace.Step, tokens uint64, length uint32) int {
	in, _ := s.StageAt(step, tokens)
	w := s.window(&in, 1)
	return w.Halved(s.units(length))
}
