package planner

import (
	"encoding/binary"
	"fmt"

	"millrace"
	"millrace/mixing"
)

// Delta is what a step changed in a State, as bytes for the journal: a version, then the sources that are not as predicted. The deficits
// of all sources move in every step; but how far follows from the shares in force before it and from what was charged, so that a source
// which was not drawn costs nothing.
//
//	version  byte: deltaPlain, or deltaBetween where a window or something carried is there, or was
//	count    uvarint, sources listed, ascending; each:
//	  gap      uvarint, sources passed over since the one before
//	  present  byte, one bit for each field that follows
//	  fields   varint each, after minus before; the seek point has six of them
//	between  deltaBetween alone: see the type
//
// A deficit's field is what is left of it after the prediction: 0 unless shares changed inside the step.
type Delta []byte

const (
	deltaPlain   = 1
	deltaBetween = 2
)

// The bits of a listed source's fields, in the order of the fields.
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

// Differ makes and applies deltas of a spec. It remembers the shares of the last step, which are mostly those of the next. One owner; not
// for concurrent use.
type Differ struct {
	spec     *Spec
	division division
	changes  []change // memory of the last delta that was read
}

// NewDiffer returns the Differ of a spec. One without a spec applies counters alone: a State's deficits stay what they were.
func NewDiffer(spec *Spec) *Differ { return &Differ{spec: spec, division: division{spec: spec}} }

// Diff returns what leads from the state before a step to that after it, given the legs of a window that ends there. It has applied it to make sure.
func (d *Differ) Diff(before, after State, legs ...Leg) (Delta, error) {
	if after.Step != before.Step+1 || len(after.Sources) != len(before.Sources) || after.Version != before.Version {
		return nil, millrace.Errorf(millrace.ErrInvalid, "difference of planner states: step %s with %d sources does not follow step %s with %d",
			after.Step, len(after.Sources), before.Step, len(before.Sources))
	}
	charged := int64(0)
	for i := range after.Sources {
		c := changeOf(i, &before.Sources[i], &after.Sources[i])
		charged += c.charge(d.spec.Unit)
	}
	between := betweenOf(&before, &after, legs)
	listed := make([]change, 0, 16)
	for i, drift := range d.drifts(&before, between, charged) {
		c := changeOf(i, &before.Sources[i], &after.Sources[i])
		c.deficit = after.Sources[i].Deficit - before.Sources[i].Deficit - drift + c.charge(d.spec.Unit)*mixing.One
		if c != (change{source: i}) {
			listed = append(listed, c)
		}
	}
	out := encodeChanges(between, listed)
	if between != nil {
		out = between.append(out, after.Sources)
	}
	back := before.Clone()
	err := d.Apply(&back, out)
	if err == nil && !back.Equal(after) {
		err = millrace.Errorf(millrace.ErrInvalid, "what it leads to differs from the state after the step")
	}
	if err != nil {
		return nil, fmt.Errorf("difference of planner states at step %s: %w", before.Step, err)
	}
	return out, nil
}

// Apply moves a state from before a step to after it. On error the state is of no use any more.
func (d *Differ) Apply(st *State, delta Delta) error {
	fail := func(err error) error {
		return millrace.Errorf(millrace.ErrInvalid, "apply what step %s changed in the planner state: %w", st.Step, err)
	}
	rest, err := d.read(delta, len(st.Sources))
	if err != nil {
		return fail(err)
	}
	var between *between
	r := compactReader{rest: rest}
	if delta[0] == deltaBetween {
		between = r.movement()
	}
	if d.spec != nil {
		d.drift(st, between)
	}
	drawn := uint64(0)
	for i := range d.changes {
		c := &d.changes[i]
		c.apply(&st.Sources[c.source])
		drawn += uint64(c.tokens)
	}
	if between == nil {
		st.Step++
		st.Tokens += drawn
		return nil
	}
	r.carriage(between, st.Sources)
	if r.bad || len(r.rest) > 0 || !between.apply(st, drawn) {
		return fail(fmt.Errorf("its %d bytes do not tell what became of a window", len(delta)))
	}
	return nil
}

// drift moves the deficits: everyone's grows by its share of all that was charged, less what the source was charged itself, and by what was not
// predicted.
func (d *Differ) drift(st *State, between *between) {
	charged := int64(0)
	for i := range d.changes {
		charged += d.changes[i].charge(d.spec.Unit)
	}
	for i, drift := range d.drifts(st, between, charged) {
		st.Sources[i].Deficit += drift
	}
	for i := range d.changes {
		c := &d.changes[i]
		st.Sources[c.source].Deficit += c.deficit - c.charge(d.spec.Unit)*mixing.One
	}
}

// drifts predicts how far each target grows: leg by leg, each with the shares of its step. The last has what the others leave of the charge.
func (d *Differ) drifts(st *State, between *between, charged int64) []int64 {
	out := make([]int64, len(st.Sources))
	begin := st.begun()
	at := begin.point()
	grow := func(charge int64) {
		for i, share := range d.division.at(&begin, at) {
			out[i] += int64(share) * charge
		}
	}
	if between != nil {
		for _, l := range between.legs {
			grow(l.Charge)
			charged -= l.Charge
			at.step++
			at.tokens += l.Tokens
		}
	}
	if charged != 0 {
		grow(charged)
	}
	return out
}

// seekPointNumbers is how many numbers a seek point has.
const seekPointNumbers = 6

// change is a source's part of a Delta: differences that wrap, so that any two states have one.
type change struct {
	source                                  int
	ordinal, offset, epoch, tokens, samples int64
	finished                                bool
	deficit                                 int64 // beside what is predicted
	seekPoint                               [seekPointNumbers]int64
}

func (c *change) charge(unit millrace.Unit) int64 {
	if unit == millrace.UnitTokens {
		return c.tokens
	}
	return c.samples
}

// changeOf is the change of all but the deficit.
func changeOf(source int, a, b *SourceState) change {
	c := change{
		source: source, ordinal: int64(b.Ordinal - a.Ordinal), offset: int64(b.Offset) - int64(a.Offset), epoch: int64(b.Epoch) - int64(a.Epoch),
		tokens: int64(b.Tokens - a.Tokens), samples: int64(b.Samples - a.Samples), finished: a.Finished != b.Finished,
	}
	x, y := a.SeekPoint, b.SeekPoint
	c.seekPoint = [seekPointNumbers]int64{int64(y.Ordinal - x.Ordinal), int64(y.Epoch) - int64(x.Epoch), int64(y.EpochStart - x.EpochStart),
		int64(y.Shard) - int64(x.Shard), int64(y.Block) - int64(x.Block), int64(y.Record - x.Record)}
	return c
}

// apply changes all but the deficit.
func (c *change) apply(s *SourceState) {
	s.Ordinal += millrace.Ordinal(c.ordinal)
	s.Offset += uint32(c.offset)
	s.Epoch += millrace.Epoch(c.epoch)
	s.Tokens += uint64(c.tokens)
	s.Samples += uint64(c.samples)
	s.Finished = s.Finished != c.finished
	a := &s.SeekPoint
	a.Ordinal += millrace.Ordinal(c.seekPoint[0])
	a.Epoch += millrace.Epoch(c.seekPoint[1])
	a.EpochStart += millrace.Ordinal(c.seekPoint[2])
	a.Shard += uint32(c.seekPoint[3])
	a.Block += uint32(c.seekPoint[4])
	a.Record += uint64(c.seekPoint[5])
}

// field is a number of a change and the bit that tells that it is there.
type field struct {
	bit   byte
	value *int64
}

// fields lists the numbers in order; the seek point's follow them.
func (c *change) fields() [6]field {
	return [6]field{{hasOrdinal, &c.ordinal}, {hasOffset, &c.offset}, {hasEpoch, &c.epoch}, {hasTokens, &c.tokens}, {hasSamples, &c.samples}, {hasDeficit, &c.deficit}}
}

func encodeChanges(between *between, listed []change) Delta {
	out := Delta{deltaPlain}
	if between != nil {
		out[0] = deltaBetween
	}
	out = binary.AppendUvarint(out, uint64(len(listed)))
	next := 0
	for i := range listed {
		out = listed[i].append(binary.AppendUvarint(out, uint64(listed[i].source-next)))
		next = listed[i].source + 1
	}
	return out
}

func (c *change) append(out Delta) Delta {
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
	return out
}

// read decodes a delta's sources, of that many, into d.changes, and returns what follows them.
func (d *Differ) read(delta Delta, sources int) (rest []byte, err error) {
	if len(delta) == 0 || delta[0] != deltaPlain && delta[0] != deltaBetween {
		return nil, fmt.Errorf("it is of a version that this program does not know: it knows %d and %d", deltaPlain, deltaBetween)
	}
	r := deltaReader{rest: delta[1:]}
	d.changes = d.changes[:0]
	next := uint64(0)
	for listed := r.unsigned(); listed > 0 && !r.short; listed-- {
		gap := r.unsigned()
		if gap >= uint64(sources)-next {
			return nil, fmt.Errorf("it lists a source beyond the %d there are", sources)
		}
		c := change{source: int(next + gap)}
		r.change(&c)
		d.changes = append(d.changes, c)
		next += gap + 1
	}
	if r.short || len(r.rest) > 0 != (delta[0] == deltaBetween) {
		return nil, fmt.Errorf("its %d bytes do not end where its sources do", len(delta))
	}
	return r.rest, nil
}

// deltaReader takes numbers off the front and remembers that there were too few.
type deltaReader struct {
	rest  []byte
	short bool
}

func (r *deltaReader) unsigned() uint64 {
	n, size := binary.Uvarint(r.rest)
	r.skip(size)
	return n
}

func (r *deltaReader) signed() int64 {
	n, size := binary.Varint(r.rest)
	r.skip(size)
	return n
}

func (r *deltaReader) skip(size int) {
	if size <= 0 {
		r.rest, r.short = nil, true
		return
	}
	r.rest = r.rest[size:]
}

func (r *deltaReader) change(c *change) {
	if len(r.rest) == 0 {
		r.short = true
		return
	}
	present := r.rest[0]
	r.rest = r.rest[1:]
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
}
