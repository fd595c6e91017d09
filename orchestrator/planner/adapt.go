package planner

import (
	"slices"

	"millrace"
)

// Fit says how a source of this run goes on from a state of another.
type Fit struct {
	From int // its place in that state; negative: it is new
	// Other: an ordinal may be another document than it was. A document that is placed in part is passed over, since its rest would be
	// nothing's, as is what is carried, and the seek point is forgotten.
	Other bool
	// Again: what ends the source is another than it was, so if it left it is asked again.
	Again bool
}

// Adapt returns the state for a run of other sources, one Fit each. A new source starts at ordinal 0, exactly on its target; one that is in
// no Fit is forgotten, but its tokens stay counted in the run's. As deficits add up to 0, what a forgotten source was owed, or had too much,
// goes to those that stay: evenly, so that what they are owed in comparison with each other is as it was. A state inside a window, or that carries
// segments of a source that is in no Fit, cannot be adapted to others: Adaptable says so.
func (s State) Adapt(fits []Fit) State {
	out := s
	out.Carried = nil
	out.Sources = make([]SourceState, len(fits))
	for i, fit := range fits {
		if fit.From < 0 {
			continue
		}
		src := s.Sources[fit.From]
		if fit.Other {
			src.SeekPoint = millrace.SeekPoint{}
			if src.Offset > 0 {
				src.Ordinal, src.Offset = src.Ordinal+1, 0
			}
		}
		src.Finished = src.Finished && !fit.Again
		for _, c := range s.Carried {
			if c.Source != uint32(fit.From) {
				continue
			}
			if fit.Other {
				src.Tokens -= uint64(c.Length)
				continue
			}
			c.Source = uint32(i)
			out.Carried = append(out.Carried, c)
		}
		out.Sources[i] = src
	}
	slices.SortFunc(out.Carried, Carried.compare)
	out.settle(fits)
	return out
}

// Adaptable tells whether the state can go on with other settings, where names are those of its sources and gone tells which of them there are no more.
func (s State) Adaptable(names []string, gone func(name string) bool) error {
	if s.Done != (Done{}) {
		begin := s.begun()
		return millrace.Errorf(millrace.ErrInvalid, "the state lies inside the window of steps that begins at step %s, which only the run that began it can end: go on from the state of step %s, or of the window's last",
			begin.Step, begin.Step)
	}
	for i, c := range s.Carried {
		if gone(names[c.Source]) && (i == 0 || c.Source != s.Carried[i-1].Source) {
			return millrace.Errorf(millrace.ErrInvalid, "segments of source %q wait to be placed, which this run does not have: keep it, with a weight of 0, until they are through, at most %d steps later",
				names[c.Source], MostWaits)
		}
	}
	return nil
}

// Forgive returns the state with every source exactly on its target: what they are owed was counted in another unit.
func (s State) Forgive() State {
	s = s.Clone()
	for i := range s.Sources {
		s.Sources[i].Deficit = 0
	}
	return s
}

// settle makes the deficits add up to 0: those share who stay and have not left; where there is none of these, all who stay.
func (s *State) settle(fits []Fit) {
	owed := int64(0)
	var stay, active []*SourceState
	for i := range s.Sources {
		src := &s.Sources[i]
		owed -= src.Deficit
		if fits[i].From < 0 {
			continue
		}
		stay = append(stay, src)
		if !src.Finished {
			active = append(active, src)
		}
	}
	if len(active) == 0 {
		active = stay
	}
	if len(active) == 0 {
		return // all are new
	}
	each, rest := owed/int64(len(active)), owed%int64(len(active))
	for i, src := range active {
		src.Deficit += each
		switch {
		case int64(i) < rest:
			src.Deficit++
		case int64(i) < -rest:
			src.Deficit--
		}
	}
}
