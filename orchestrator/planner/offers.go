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

// Labels is implemented by Offers of sources with untrained tokens. Untrained returns how many labels of a part of an
// ordinal are left out of the loss; false: the offer only says it of the whole ordinal.
type Labels interface {
	Untrained(seg *millrace.Segment) (n uint32, ok bool)
}

// leaveOut fills in the labels of a segment that are left out of the loss. meta is that of its ordinal.
func (s *Spec) leaveOut(o Offers, meta *millrace.SampleMeta, seg *millrace.Segment) error {
	src := &s.Sources[seg.Source]
	switch isWhole := seg.Offset == meta.Offset && seg.Offset+seg.Length == src.endOf(meta); {
	case !src.Untrained:
		return nil
	case meta.Rejected: // no loader can read it, so the segment will be masked
		seg.Untrained = 0
		seg.Untrained = seg.Labels()
		return nil
	case isWhole || meta.Untrained == 0:
		seg.Untrained = meta.Untrained
		return nil
	}
	if known, ok := o.(Labels); ok {
		if n, ok := known.Untrained(seg); ok {
			seg.Untrained = n
			return nil
		}
	}
	return millrace.Errorf(millrace.ErrMismatch, "plan: source %q: the loader did not say which tokens of document %s "+
		"are trained on, and tokens %d to %d of it are placed alone: do loaders and orchestrator have the "+
		"same mixture file?",
		src.Name, seg.Ordinal, seg.Offset, seg.Offset+seg.Length)
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
