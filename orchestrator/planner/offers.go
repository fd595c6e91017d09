package planner

import (
	"millrace"
	"millrace/orchestrator/planner/progress"
)

// Availability reports whether the metadata of an ordinal is known.
type Availability uint8

// The answers of Offers.
const (
	Pending Availability = iota // not known yet
	Ready                       // known
	Ended                       // the source has neither this ordinal nor a later one
)

// Offers gives the metadata that loaders have offered, in ordinal order. Metadata never changes. Everything from a
// source's State.Floor on stays available until a later State moves past it, because draws that a step leaves out are
// made again.
type Offers interface {
	Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, Availability)
}

// SeekPoints is implemented by Offers of sources whose order needs seek points. SeekPoint returns the newest seek point
// at or before an ordinal, or the zero SeekPoint if there is none.
type SeekPoints interface {
	SeekPoint(source int, at millrace.Ordinal) millrace.SeekPoint
}

// updateSeekPoints sets each source's seek point to the newest one that offers have at or below the source's floor.
func updateSeekPoints(s *progress.State, o Offers) {
	known, ok := o.(SeekPoints)
	if !ok {
		return
	}
	for i := range s.Sources {
		src := &s.Sources[i]
		floor := s.Floor(i)
		if a := known.SeekPoint(i, floor); a.Ordinal >= src.SeekPoint.Ordinal && a.Ordinal <= floor &&
			a != (millrace.SeekPoint{}) {
			src.SeekPoint = a
		}
	}
}

// missing names the metadata that drawing waits for.
type missing struct {
	source  int
	ordinal millrace.Ordinal
}
