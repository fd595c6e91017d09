package mixing

import (
	"fmt"
	"slices"
)

// Measure is the unit of a place in a schedule.
type Measure uint8

// The measures of a schedule's places. The zero value is Steps.
const (
	Steps  Measure = iota // optimizer steps
	Tokens                // document tokens placed before the step
)

// String returns the measure's word in a mixture file.
func (m Measure) String() string {
	if m == Tokens {
		return "tokens"
	}
	return "steps"
}

// Point is a place in a schedule, or a length, in steps or in tokens.
type Point struct {
	Measure Measure
	Count   uint64
}

// IsReached reports whether a step is at the point or after it. tokensPlaced is the number of tokens before the step.
func (p Point) IsReached(step, tokensPlaced uint64) bool {
	if p.Measure == Tokens {
		return tokensPlaced >= p.Count
	}
	return step >= p.Count
}

// Milestone is one entry of a schedule: its weights hold from a point on. With a ramp, they come into force over a
// length in the same measure.
type Milestone struct {
	From    Point
	Weights []Weight // one per source
	Ramp    Ramp
	Over    Point // the zero Point without a ramp
}

// MilestoneError names the entry of a schedule that is wrong, so that the caller can point at its line.
type MilestoneError struct {
	Milestone int    // index of the entry
	Field     string // "from", "over", "ramp" or "weights"
	Err       error
}

func (e *MilestoneError) Error() string {
	return fmt.Sprintf("schedule entry %d: %s: %v", e.Milestone, e.Field, e.Err)
}

// Unwrap returns the reason.
func (e *MilestoneError) Unwrap() error { return e.Err }

// Schedule gives the mixture in force at every step. It is read-only after NewSchedule and safe for concurrent use.
//
// Ramps blend proportions, each milestone's weights scaled to a sum of 1: weights are relative, so {a: 6, b: 4} and {a:
// 0.6, b: 0.4} must ramp alike. A ramp starts from the mixture that the schedule before it has at its point. Inside
// another ramp, it starts from the mixture of that ramp, so the mixture never jumps.
type Schedule struct {
	given      []Milestone
	milestones []milestone // of each given one
	bounds     Bounds
}

// milestone is a validated Milestone. Its ramp leads from before to after. Without a ramp, over is 0 and before is nil.
type milestone struct {
	measure       Measure
	from, over    uint64
	ramp          Ramp
	before, after Proportions
}

// NewSchedule returns the schedule of a mixture of `sources` sources. The first milestone is at 0 and has no ramp. The
// others follow in strictly rising order, all in one measure. Errors are *MilestoneError; one of all-zero weights wraps
// ErrNoWeight.
func NewSchedule(sources int, milestones []Milestone) (*Schedule, error) {
	if len(milestones) == 0 {
		return nil, &MilestoneError{0, "from", fmt.Errorf("the schedule is empty: it needs an entry from 0")}
	}
	s := &Schedule{given: slices.Clone(milestones), milestones: make([]milestone, 0, len(milestones))}
	for i, k := range milestones {
		if err := checkMilestone(i, sources, milestones); err != nil {
			return nil, err
		}
		after, err := Proportion(k.Weights)
		if err != nil {
			return nil, &MilestoneError{i, "weights", err}
		}
		next := milestone{measure: k.From.Measure, from: k.From.Count, ramp: k.Ramp, over: k.Over.Count, after: after}
		if k.Ramp != RampNone {
			next.before = s.milestones[i-1].proportionsAt(next.from)
		}
		s.milestones = append(s.milestones, next)
	}
	return s, nil
}

// checkMilestone validates entry i against the one before it.
func checkMilestone(i, sources int, milestones []Milestone) error {
	k := milestones[i]
	fail := func(field, format string, args ...any) error {
		return &MilestoneError{i, field, fmt.Errorf(format, args...)}
	}
	switch {
	case len(k.Weights) != sources:
		return fail("weights", "there are %d weights for %d sources", len(k.Weights), sources)
	case k.From.Measure > Tokens:
		return fail("from", "unknown measure %d", k.From.Measure)
	case i == 0 && k.From.Count != 0:
		return fail("from", "the first entry is from %d, so there are no weights before it: it must be from 0",
			k.From.Count)
	case i > 0 && k.From.Measure != milestones[0].From.Measure:
		return fail("from", "it counts %s, the entries before it %s: a schedule counts one of them throughout",
			k.From.Measure, milestones[0].From.Measure)
	case i > 0 && k.From.Count <= milestones[i-1].From.Count:
		return fail("from", "%d does not come after %d of the entry before it", k.From.Count,
			milestones[i-1].From.Count)
	case k.Ramp >= rampEnd:
		return fail("ramp", "unknown ramp %d", k.Ramp)
	case k.Ramp == RampNone && k.Over != Point{}:
		return fail("over", "a length without a ramp: set ramp: linear, or leave it out")
	case k.Ramp == RampNone:
		return nil
	case i == 0:
		return fail("ramp", "the first entry has nothing to ramp from")
	case k.Over.Measure != k.From.Measure:
		return fail("over", "it counts %s, its beginning %s: both must count the same", k.Over.Measure, k.From.Measure)
	case k.Over.Count == 0 || k.Over.Count > wholeParts:
		return fail("over", "a %s ramp needs a length of at least 1 and at most 2^62", k.Ramp)
	}
	return nil
}

// At returns the mixture of a step. tokensPlaced is the number of document tokens that were placed before it. The
// caller may keep and change it.
func (s *Schedule) At(step, tokensPlaced uint64) Proportions {
	k, place := s.inForce(step, tokensPlaced)
	return s.milestones[k].proportionsAt(place)
}

// Bound sets bounds on every source's part of the mixture, at every step. Call it before the schedule is used.
func (s *Schedule) Bound(b Bounds) { s.bounds = b }

// Divide returns the shares of a mixture that At gave, for the active sources (all if active is nil), within the
// schedule's bounds.
func (s *Schedule) Divide(mixture Proportions, active []bool) []uint32 {
	if s.bounds.Least != nil || s.bounds.Most != nil {
		mixture = mixture.Within(s.bounds, active)
	}
	return mixture.Shares(active)
}

// CanReceive reports per source whether it has a positive weight at the step or at a later one. A run is over if none
// of its unfinished sources can receive weight.
func (s *Schedule) CanReceive(step, tokensPlaced uint64) []bool {
	k, place := s.inForce(step, tokensPlaced)
	can := make([]bool, len(s.milestones[k].after))
	mark := func(p Proportions) {
		for i, x := range p {
			can[i] = can[i] || x > 0
		}
	}
	mark(s.milestones[k].proportionsAt(place))
	for _, later := range s.milestones[k:] {
		mark(later.after)
	}
	return can
}

// HasBreak reports whether an entry begins, or a ramp ends, after one step and no later than the next. The tokens are
// those placed before each. Between two breaks the mixture is constant or follows one ramp.
func (s *Schedule) HasBreak(step, tokensPlaced, nextStep, nextTokensPlaced uint64) bool {
	_, from := s.inForce(step, tokensPlaced)
	_, to := s.inForce(nextStep, nextTokensPlaced)
	between := func(place uint64) bool { return from < place && place <= to }
	return slices.ContainsFunc(s.milestones,
		func(k milestone) bool { return between(k.from) || k.over > 0 && between(k.from+k.over) })
}

// inForce returns the last milestone that begins at or before the place, and the place in that milestone's measure.
func (s *Schedule) inForce(step, tokensPlaced uint64) (k int, place uint64) {
	place = step
	if s.milestones[0].measure == Tokens {
		place = tokensPlaced
	}
	k = len(s.milestones) - 1
	for s.milestones[k].from > place {
		k--
	}
	return k, place
}

// proportionsAt returns the milestone's mixture at a place in its measure, no earlier than from.
func (k *milestone) proportionsAt(place uint64) Proportions {
	done := place - k.from
	if done >= k.over {
		return slices.Clone(k.after)
	}
	over := k.over
	if k.ramp == RampCosine {
		done, over = cosineWay(done, over), wholeParts
	}
	mixed := make(Proportions, len(k.after))
	for i := range mixed {
		mixed[i] = blend(k.before[i], k.after[i], done, over)
	}
	return mixed
}
