package progress

import (
	"strconv"

	"millrace"
)

// Source is a source's part of a State: its next document, its counters and its deficit. Counters count draws, carried
// segments included.
type Source struct {
	Ordinal   millrace.Ordinal   // of the document that the next segment comes from
	Offset    uint32             // tokens of that document already placed
	Epoch     millrace.Epoch     // of the last document consumed
	Tokens    uint64             // document tokens drawn
	Samples   uint64             // documents drawn, counted at their first segment
	Deficit   int64              // target minus placed, in parts of mixing.One
	Finished  bool               // it ended and left the mixture
	SeekPoint millrace.SeekPoint // the newest known at or before State.Floor; zero if the source's order needs none
	Counts    Counts
}

// The notes of SampleMeta.Refused, by their bits: those of filter.TooLong and filter.Skipped. They count documents, and
// refuse none.
const (
	noteTooLong = 30 // the document was longer than its source allows: truncated, dropped, or to be split
	noteMissing = 31 // the record was left out because a field is missing; bit 0 is set too
)

// Counts counts documents by the notes of their offers, and labels. Runs that were saved before there were counts begin
// at zero.
type Counts struct {
	Missing uint64 // left out because a field is missing
	TooLong uint64 // longer than the source allows: truncated, dropped or split
	// Trained counts labels that are in the loss, like Tokens; 0 in sources whose tokens are all trained on.
	Trained uint64
}

// Add counts a document with these notes (millrace.SampleMeta.Refused), when its source goes past its beginning.
func (c *Counts) Add(notes uint64) {
	c.Missing += notes >> noteMissing & 1
	c.TooLong += notes >> noteTooLong & 1
}

// PassedOver returns the number of documents that were consumed without a token: refused by filters, empty, or
// rejected.
func (s *Source) PassedOver() uint64 {
	begun := uint64(0)
	if s.Offset > 0 {
		begun = 1
	}
	return uint64(s.Ordinal) + begun - s.Samples
}

// drew reports whether a carried segment is before the source's next token.
func (s *Source) drew(c Carried) bool {
	return c.Ordinal < s.Ordinal ||
		c.Ordinal == s.Ordinal && c.More && uint64(c.Offset)+uint64(c.Length) <= uint64(s.Offset)
}

// MarshalJSON writes [ordinal, offset, epoch, tokens, samples, deficit, finished]. With a seek point, [ordinals before
// the cursor, epoch, ordinals into the epoch, shard, block, record] follow in the same list. With counts, the list
// [missing, too long] or [missing, too long, trained] is the last item.
func (s Source) MarshalJSON() ([]byte, error) {
	finished := uint64(0)
	if s.Finished {
		finished = 1
	}
	b := []byte{'['}
	for _, n := range []uint64{uint64(s.Ordinal), uint64(s.Offset), uint64(s.Epoch), s.Tokens, s.Samples} {
		b = append(strconv.AppendUint(b, n, 10), ',')
	}
	b = append(strconv.AppendInt(b, s.Deficit, 10), ',')
	b = strconv.AppendUint(b, finished, 10)
	if a := s.SeekPoint; a != (millrace.SeekPoint{}) {
		back, into := uint64(s.Ordinal-a.Ordinal), uint64(a.Ordinal-a.EpochStart)
		for _, n := range []uint64{back, uint64(a.Epoch), into, uint64(a.Shard), uint64(a.Block), a.Record} {
			b = strconv.AppendUint(append(b, ','), n, 10)
		}
	}
	if c := s.Counts; c != (Counts{}) {
		b = strconv.AppendUint(append(b, ",["...), c.Missing, 10)
		b = strconv.AppendUint(append(b, ','), c.TooLong, 10)
		if c.Trained > 0 {
			b = strconv.AppendUint(append(b, ','), c.Trained, 10)
		}
		b = append(b, ']')
	}
	return append(b, ']'), nil
}
