package planner

import (
	"cmp"
	"encoding/binary"
	"slices"

	"millrace"
)

// MostWaits is the most steps that a carried segment waits; with windows longer than that, the next window. With Bucketed rare lengths wait
// longer, until BucketWaits steps are behind and a step has room.
const (
	MostWaits   = 8
	BucketWaits = 30

	stateCarried = 2 * millrace.MostCarried // a stage with shorter bins than the one before may pack the middle of a segment that waits
)

// Carried is a segment that was drawn, and charged to its source, but that its step had no room for. What else there is to know of it are facts
// that are offered again, from the source's Floor on.
type Carried struct {
	Source  uint32           `json:"source"`
	Ordinal millrace.Ordinal `json:"ordinal"`
	Offset  uint32           `json:"offset"` // tokens of the document before it
	Length  uint32           `json:"length"` // tokens
	More    bool             `json:"more"`   // the document goes on behind it
	Age     uint32           `json:"age"`    // steps that it has waited
}

// compare orders what is carried: a State has it so, each segment once.
func (c Carried) compare(o Carried) int {
	return cmp.Or(cmp.Compare(c.Source, o.Source), cmp.Compare(c.Ordinal, o.Ordinal), cmp.Compare(c.Offset, o.Offset))
}

// joins tells whether the other goes on where the segment ends, and has waited as long.
func (c Carried) joins(o Carried) bool {
	return c.Source == o.Source && c.Ordinal == o.Ordinal && uint64(c.Offset)+uint64(c.Length) == uint64(o.Offset) && c.Age == o.Age
}

// Floor is the first ordinal of a source that a run which goes on from the state needs: its cursor's, or that of the first segment that
// is carried. Loaders start there and may forget what lies below.
func (s *State) Floor(source int) millrace.Ordinal {
	floor := s.Sources[source].Ordinal
	if i, _ := slices.BinarySearchFunc(s.Carried, Carried{Source: uint32(source)}, Carried.compare); i < len(s.Carried) && s.Carried[i].Source == uint32(source) {
		floor = min(floor, s.Carried[i].Ordinal)
	}
	return floor
}

// lengthOf sums up the tokens of what is carried.
func lengthOf(list []Carried) (tokens uint64) {
	for i := range list {
		tokens += uint64(list[i].Length)
	}
	return tokens
}

// validateCarried tells whether what is carried lies before the cursors, in order.
func (s *State) validateCarried() error {
	if len(s.Carried) > stateCarried {
		return millrace.Errorf(millrace.ErrInvalid, "planner state: it carries %d segments, at most %d are", len(s.Carried), stateCarried)
	}
	for i, c := range s.Carried {
		if int(c.Source) >= len(s.Sources) || i > 0 && s.Carried[i-1].compare(c) >= 0 || !c.behind(&s.Sources[c.Source]) || c.Length == 0 || c.Age > maxAge {
			return millrace.Errorf(millrace.ErrInvalid, "planner state: segment %d that it carries, %+v, is out of order or was not drawn yet", i, c)
		}
	}
	return nil
}

// behind tells whether the segment lies before its source's cursor.
func (c Carried) behind(at *SourceState) bool {
	return c.Ordinal < at.Ordinal || c.Ordinal == at.Ordinal && c.More && uint64(c.Offset)+uint64(c.Length) <= uint64(at.Offset)
}

// grown is an age some steps later. It does not grow without bound, since what is as old as that goes first in any case.
func grown(age, steps uint32) uint32 { return min(age+min(steps, maxAge), maxAge) }

// A carried segment's first byte: its age, and what follows.
const (
	maxAge      = 1<<5 - 1
	carriedNext = 1 << 5 // sources passed over: it is another than that of the one before
	carriedFrom = 1 << 6 // an offset
	carriedMore = 1 << 7 // nothing, but in the document
)

// between tells whether the state has what a plain one has not.
func (s *State) between() bool { return s.Done != Done{} || len(s.Carried) > 0 }

// compactBetween writes what a plain state has not.
func (s *State) compactBetween(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(s.Done.Steps))
	b = binary.AppendUvarint(b, s.Done.Tokens)
	return appendCarried(b, s.Carried, s.Sources)
}

// appendCarried writes how many there are and each behind the one before it.
func appendCarried(b []byte, list []Carried, sources []SourceState) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	before := Carried{}
	for i, c := range list {
		b = c.append(b, before, sources, i == 0)
		before = c
	}
	return b
}

// append writes a segment behind the one before it. The first of a source says how far it lies behind the cursor, the others how far before
// the one before.
func (c Carried) append(b []byte, before Carried, sources []SourceState, first bool) []byte {
	at := len(b)
	b = append(b, byte(c.Age))
	if first || c.Source != before.Source {
		b[at] |= carriedNext
		b = binary.AppendUvarint(b, uint64(c.Source-before.Source))
		b = binary.AppendUvarint(b, uint64(sources[c.Source].Ordinal-c.Ordinal))
	} else {
		b = binary.AppendUvarint(b, uint64(c.Ordinal-before.Ordinal))
	}
	if c.Offset > 0 {
		b[at] |= carriedFrom
		b = binary.AppendUvarint(b, uint64(c.Offset))
	}
	if c.More {
		b[at] |= carriedMore
	}
	return binary.AppendUvarint(b, uint64(c.Length))
}

func (r *compactReader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// between reads what compactBetween wrote.
func (r *compactReader) between(s *State) {
	s.Done = Done{Steps: uint32(r.unsigned(max32)), Tokens: r.unsigned(max64)}
	s.Carried = r.carriedList(s.Sources)
}

func (r *compactReader) carriedList(sources []SourceState) (list []Carried) {
	before := Carried{}
	for n := r.unsigned(stateCarried); n > 0 && !r.bad; n-- {
		before = r.carried(before, sources, list == nil)
		list = append(list, before)
	}
	return list
}

func (r *compactReader) carried(before Carried, sources []SourceState, first bool) Carried {
	flags := r.byte()
	c := Carried{Source: before.Source, Age: uint32(flags & maxAge)}
	if flags&carriedNext != 0 {
		over := r.unsigned(max32)
		if r.bad || uint64(before.Source)+over >= uint64(len(sources)) || over == 0 && !first {
			r.bad = true
			return c
		}
		c.Source += uint32(over)
		c.Ordinal = sources[c.Source].Ordinal - millrace.Ordinal(r.unsigned(uint64(sources[c.Source].Ordinal)))
	} else {
		c.Ordinal = before.Ordinal + millrace.Ordinal(r.unsigned(max64-uint64(before.Ordinal)))
		r.bad = r.bad || first
	}
	if flags&carriedFrom != 0 {
		c.Offset = uint32(r.unsigned(max32))
		r.bad = r.bad || c.Offset == 0
	}
	c.Length, c.More = uint32(r.unsigned(max32)), flags&carriedMore != 0
	return c
}

// resume puts what is carried into the pool: known segments, in the order of State.Carried, or what their facts say.
func (d *draft) resume(known []millrace.Segment, o Offers) (*missing, error) {
	for _, c := range d.begin.Carried[d.resumed:] {
		var seg millrace.Segment
		if d.resumed < len(known) {
			seg = known[d.resumed]
		} else {
			var wait *missing
			var err error
			if seg, wait, err = d.recall(c, o); wait != nil || err != nil {
				return wait, err
			}
		}
		d.resumed++
		d.again(seg, c.Age)
	}
	return nil, nil
}

// again puts a segment into the pool: in pieces, where bins have become shorter since it was drawn.
func (d *draft) again(seg millrace.Segment, age uint32) {
	for left, more := seg.Length, seg.More; left > 0; left -= seg.Length {
		seg.Length = min(left, d.most())
		seg.More = more || seg.Length < left
		d.segments = append(d.segments, seg)
		d.weigh(&seg)
		d.ages = append(d.ages, age)
		seg.Offset += seg.Length
		seg.Patches = 0
	}
}

// recall makes a carried segment of its document's facts. A document that cannot be decoded any more keeps its place: it was drawn already.
func (d *draft) recall(c Carried, o Offers) (seg millrace.Segment, wait *missing, err error) {
	meta, a := o.Peek(int(c.Source), c.Ordinal)
	if a == Pending {
		return seg, &missing{int(c.Source), c.Ordinal}, nil
	}
	end, tokens := uint64(c.Offset)+uint64(c.Length), uint64(meta.Lengths.Tokens)
	if a == Ended || meta.Reject == "" && (end > tokens || c.More != (end < tokens)) {
		return seg, nil, millrace.Errorf(millrace.ErrMismatch, "plan step %s: source %q: of document %s tokens %d to %d wait to be placed, now it has %d; it is not the document it was",
			d.begin.Step, d.walk.spec.Sources[c.Source].Name, c.Ordinal, c.Offset, end, tokens)
	}
	seg = millrace.Segment{Source: c.Source, Ordinal: c.Ordinal, Epoch: meta.Epoch, ID: meta.ID, Offset: c.Offset, Length: c.Length, More: c.More}
	if c.Offset == 0 {
		seg.Patches = meta.Lengths.Patches
	}
	return seg, nil, nil
}
