package progress

import (
	"encoding/binary"

	"millrace"
)

// The first byte of a carried segment in binary form: its age in the low five bits, and these.
const (
	carriedNext = 1 << 5 // a number of sources follows: it is of another source than the segment before
	carriedFrom = 1 << 6 // an offset follows
	carriedMore = 1 << 7 // the document continues after it
)

// appendCarried writes the number of segments, then each relative to the one before. sources are those of the same
// state.
func appendCarried(b []byte, list []Carried, sources []Source) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	before := Carried{}
	for i, c := range list {
		b = appendSegment(b, c, before, sources, i == 0)
		before = c
	}
	return b
}

// appendSegment writes one segment. The first of a source has its distance to the source's next document, the others
// have theirs to the segment before.
func appendSegment(b []byte, c, before Carried, sources []Source, first bool) []byte {
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

// readCarried reads the form that appendCarried writes.
func (r *numbers) readCarried(sources []Source) (list []Carried) {
	before := Carried{}
	for n := r.unsigned(mostCarried); n > 0 && !r.failed; n-- {
		before = r.readSegment(before, sources, list == nil)
		list = append(list, before)
	}
	return list
}

func (r *numbers) readSegment(before Carried, sources []Source, first bool) Carried {
	flags := r.flags()
	c := Carried{Source: before.Source, Age: uint32(flags & maxAge)}
	if flags&carriedNext != 0 {
		over := r.unsigned(max32)
		if r.failed || uint64(before.Source)+over >= uint64(len(sources)) || over == 0 && !first {
			r.fail()
			return c
		}
		c.Source += uint32(over)
		c.Ordinal = sources[c.Source].Ordinal - millrace.Ordinal(r.unsigned(uint64(sources[c.Source].Ordinal)))
	} else {
		c.Ordinal = before.Ordinal + millrace.Ordinal(r.unsigned(max64-uint64(before.Ordinal)))
		if first {
			r.fail()
		}
	}
	if flags&carriedFrom != 0 {
		c.Offset = uint32(r.unsigned(max32))
		if c.Offset == 0 {
			r.fail()
		}
	}
	c.Length, c.More = uint32(r.unsigned(max32)), flags&carriedMore != 0
	return c
}
