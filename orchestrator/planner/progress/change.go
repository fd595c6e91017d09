package progress

import (
	"encoding/binary"

	"millrace"
)

// The bits of a source's fields in a Delta, in the order of the fields.
const (
	hasOrdinal = 1 << iota
	hasOffset
	hasEpoch
	hasTokens
	hasSamples
	hasFinished // flipped; it has no field
	hasDeficit
	hasSeekPoint
)

// seekPointNumbers is the number of integers in a seek point.
const seekPointNumbers = 6

// change is a source's part of a Delta: differences that wrap, so that any two states have one.
type change struct {
	source                                  int
	ordinal, offset, epoch, tokens, samples int64
	finished                                bool
	deficit                                 int64 // beyond the prediction
	seekPoint                               [seekPointNumbers]int64
	missing, tooLong                        int64 // of Counts; in the forms with counts only
	trained                                 int64 // of Counts; in the forms with trained labels only
}

// charge returns the amount that the source was charged, in the unit of the mixture.
func (c *change) charge(unit millrace.Unit) int64 {
	if unit == millrace.UnitTokens {
		return c.tokens
	}
	return c.samples
}

// changeOf returns the change of everything except the deficit.
func changeOf(source int, a, b *Source) change {
	x, y := a.SeekPoint, b.SeekPoint
	return change{
		source:   source,
		ordinal:  int64(b.Ordinal - a.Ordinal),
		offset:   int64(b.Offset) - int64(a.Offset),
		epoch:    int64(b.Epoch) - int64(a.Epoch),
		tokens:   int64(b.Tokens - a.Tokens),
		samples:  int64(b.Samples - a.Samples),
		finished: a.Finished != b.Finished,
		missing:  int64(b.Counts.Missing - a.Counts.Missing),
		tooLong:  int64(b.Counts.TooLong - a.Counts.TooLong),
		trained:  int64(b.Counts.Trained - a.Counts.Trained),
		seekPoint: [seekPointNumbers]int64{
			int64(y.Ordinal - x.Ordinal), int64(y.Epoch) - int64(x.Epoch), int64(y.EpochStart - x.EpochStart),
			int64(y.Shard) - int64(x.Shard), int64(y.Block) - int64(x.Block), int64(y.Record - x.Record),
		},
	}
}

// applyTo changes everything except the deficit.
func (c *change) applyTo(s *Source) {
	s.Ordinal += millrace.Ordinal(c.ordinal)
	s.Offset += uint32(c.offset)
	s.Epoch += millrace.Epoch(c.epoch)
	s.Tokens += uint64(c.tokens)
	s.Samples += uint64(c.samples)
	s.Finished = s.Finished != c.finished
	s.Counts.Missing += uint64(c.missing)
	s.Counts.TooLong += uint64(c.tooLong)
	s.Counts.Trained += uint64(c.trained)
	a := &s.SeekPoint
	a.Ordinal += millrace.Ordinal(c.seekPoint[0])
	a.Epoch += millrace.Epoch(c.seekPoint[1])
	a.EpochStart += millrace.Ordinal(c.seekPoint[2])
	a.Shard += uint32(c.seekPoint[3])
	a.Block += uint32(c.seekPoint[4])
	a.Record += uint64(c.seekPoint[5])
}

// field is a number of a change and the bit that marks its presence.
type field struct {
	bit   byte
	value *int64
}

// fields lists the numbers in order; the seek point's follow them.
func (c *change) fields() [6]field {
	return [6]field{
		{hasOrdinal, &c.ordinal}, {hasOffset, &c.offset}, {hasEpoch, &c.epoch},
		{hasTokens, &c.tokens}, {hasSamples, &c.samples}, {hasDeficit, &c.deficit},
	}
}

// appendChange writes the presence byte and the fields, and the numbers that a delta's form has.
func appendChange(out []byte, c *change, form byte) []byte {
	at := len(out)
	out = append(out, 0)
	for _, f := range c.fields() {
		if *f.value != 0 {
			out[at] |= f.bit
			out = binary.AppendVarint(out, *f.value)
		}
	}
	if c.finished {
		out[at] |= hasFinished
	}
	if c.seekPoint != [seekPointNumbers]int64{} {
		out[at] |= hasSeekPoint
		for _, n := range c.seekPoint {
			out = binary.AppendVarint(out, n)
		}
	}
	if form&deltaCounts != 0 {
		out = binary.AppendVarint(binary.AppendVarint(out, c.missing), c.tooLong)
	}
	if form&deltaTrained != 0 {
		out = binary.AppendVarint(out, c.trained)
	}
	return out
}

// readChange reads the form that appendChange writes.
func (r *numbers) readChange(source int, form byte) change {
	c := change{source: source}
	present := r.flags()
	for _, f := range c.fields() {
		if present&f.bit != 0 {
			*f.value = r.signed()
		}
	}
	c.finished = present&hasFinished != 0
	if present&hasSeekPoint != 0 {
		for i := range c.seekPoint {
			c.seekPoint[i] = r.signed()
		}
	}
	if form&deltaCounts != 0 {
		c.missing, c.tooLong = r.signed(), r.signed()
	}
	if form&deltaTrained != 0 {
		c.trained = r.signed()
	}
	return c
}
