package progress

import (
	"slices"

	"millrace"
)

// Mapping maps a source of this run to the source of a saved state that it continues.
type Mapping struct {
	From int // its index in that state; negative: the source is new
	// IsReplaced: an ordinal may name another document than before. A document that is placed in part is passed over,
	// carried segments are dropped, and the seek point is cleared.
	IsReplaced bool
	// IsGone reports whether a document that was drawn is of a file that was removed: the rest of it is passed over,
	// and its carried segments are dropped. nil: there are none.
	IsGone func(millrace.Ordinal) bool
	// HasNewEnd: the source's end may have moved. A source that had ended is asked again.
	HasNewEnd bool
}

// Adapt returns the state for a run with other sources, one Mapping each. A new source starts at ordinal 0 with a
// deficit of 0. A removed source is forgotten; its tokens stay counted in State.Tokens, and its deficit is divided
// evenly among the sources that stay, because deficits add up to 0. Call CheckAdaptable first.
func (s State) Adapt(mappings []Mapping) State {
	out := s
	out.Carried = nil
	out.Sources = make([]Source, len(mappings))
	for i, m := range mappings {
		if m.From < 0 {
			continue
		}
		src := s.Sources[m.From]
		isGone := m.IsGone
		if m.IsReplaced {
			src.SeekPoint = millrace.SeekPoint{}
			isGone = func(millrace.Ordinal) bool { return true }
		}
		if src.Offset > 0 && isGone != nil && isGone(src.Ordinal) {
			src.Ordinal, src.Offset = src.Ordinal+1, 0
		}
		src.Finished = src.Finished && !m.HasNewEnd
		for _, c := range s.Carried {
			if c.Source != uint32(m.From) {
				continue
			}
			if isGone != nil && isGone(c.Ordinal) {
				src.Tokens -= uint64(c.Length)
				continue
			}
			c.Source = uint32(i)
			out.Carried = append(out.Carried, c)
		}
		out.Sources[i] = src
	}
	slices.SortFunc(out.Carried, Carried.Compare)
	out.balanceDeficits(mappings)
	return out
}

// CheckAdaptable returns an error if the state cannot continue with other settings: inside a window, or if it carries
// segments of a source that isRemoved reports. names are those of the state's sources.
func (s State) CheckAdaptable(names []string, isRemoved func(name string) bool) error {
	if s.Done != (Done{}) {
		begin := s.Begun()
		return millrace.Errorf(millrace.ErrInvalid,
			"the state lies inside the window of steps that begins at step %s, "+
				"and only the run that began the window can end it: "+
				"go on from the state of step %s or of the window's last step",
			begin.Step, begin.Step)
	}
	for i, c := range s.Carried {
		if isRemoved(names[c.Source]) && (i == 0 || c.Source != s.Carried[i-1].Source) {
			return millrace.Errorf(millrace.ErrInvalid,
				"segments of source %q wait to be placed, and this run has no such source: "+
					"keep it, with a weight of 0, until they are placed, at most %d steps later",
				names[c.Source], MostWaits)
		}
	}
	return nil
}

// ResetDeficits returns the state with every source on its target, for a mixture that counts in another unit.
func (s State) ResetDeficits() State {
	s = s.Clone()
	for i := range s.Sources {
		s.Sources[i].Deficit = 0
	}
	return s
}

// balanceDeficits makes the deficits add up to 0. Sources that stay and have not ended share the difference; if all
// have ended, all sources that stay share it.
func (s *State) balanceDeficits(mappings []Mapping) {
	owed := int64(0)
	var stay, active []*Source
	for i := range s.Sources {
		src := &s.Sources[i]
		owed -= src.Deficit
		if mappings[i].From < 0 {
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
