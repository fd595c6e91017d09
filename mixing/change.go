package mixing

import (
	"math/bits"
	"slices"
	"strconv"
)

// Sources returns the number of sources of the schedule.
func (s *Schedule) Sources() int { return len(s.milestones[0].after) }

// Measure returns the measure of all its points.
func (s *Schedule) Measure() Measure { return s.given[0].From.Measure }

// Milestones returns the entries, in order. The caller may keep the list, but must not change its weights.
func (s *Schedule) Milestones() []Milestone { return slices.Clone(s.given) }

// With returns a schedule that is equal to s before the first of the milestones and follows the milestones from there
// on. Later entries of s are dropped. A ramp at the first milestone starts from the mixture that s has there. Adding
// equal milestones again changes nothing. The errors are those of NewSchedule, with the entries of the whole schedule
// numbered.
func (s *Schedule) With(milestones []Milestone) (*Schedule, error) {
	if len(milestones) == 0 {
		return s, nil
	}
	before := slices.IndexFunc(s.given, func(k Milestone) bool { return k.From.Count >= milestones[0].From.Count })
	if before < 0 {
		before = len(s.given)
	}
	out, err := NewSchedule(s.Sources(), append(slices.Clone(s.given[:before]), milestones...))
	if err != nil {
		return nil, err
	}
	out.bounds = s.bounds
	return out, nil
}

// Since returns a schedule that is equal to s from a place on, without entries that no longer have an effect. Its first
// entry is the one in force at the place. If that is a ramp under way, the entry that the ramp starts from is kept too.
func (s *Schedule) Since(step, tokensPlaced uint64) *Schedule {
	first, place := s.inForce(step, tokensPlaced)
	for ; first > 0; place, first = s.milestones[first].from, first-1 {
		if k := &s.milestones[first]; place-k.from >= k.over {
			break // its weights hold without a ramp
		}
	}
	given := slices.Clone(s.given[first:])
	given[0].From.Count, given[0].Ramp, given[0].Over = 0, RampNone, Point{}
	out, err := NewSchedule(s.Sources(), given)
	if err != nil {
		return s // cannot happen: valid entries stay valid
	}
	out.bounds = s.bounds
	return out
}

// Running returns the end of the ramp that is under way at a place, 0 if there is none.
func (s *Schedule) Running(step, tokensPlaced uint64) uint64 {
	i, place := s.inForce(step, tokensPlaced)
	if k := &s.milestones[i]; place-k.from < k.over {
		return k.from + k.over
	}
	return 0
}

// InForce returns the entry in force at a place.
func (s *Schedule) InForce(step, tokensPlaced uint64) Milestone {
	i, _ := s.inForce(step, tokensPlaced)
	return s.given[i]
}

// Billionths returns weights in the same proportion, as decimals of nine places that add up to about 1. A positive
// weight never becomes 0.
func Billionths(weights []Weight) ([]Weight, error) {
	parts, err := Proportion(weights)
	if err != nil {
		return nil, err
	}
	out := make([]Weight, len(parts))
	for i, x := range parts {
		if x == 0 {
			continue
		}
		high, low := bits.Mul64(x, 1_000_000_000)
		low, carry := bits.Add64(low, wholeParts/2, 0)
		w, err := ParseWeight(strconv.FormatUint(max(1, (high+carry)<<(64-wholeBits)|low>>wholeBits), 10) + "e-9")
		if err != nil {
			return nil, err
		}
		out[i] = w
	}
	return out, nil
}
