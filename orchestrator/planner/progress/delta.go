package progress

import (
	"encoding/binary"
	"fmt"
	"slices"

	"millrace"
	"millrace/mixing"
)

// Delta is the change of a State by one step, as bytes for the journal: a version, then the sources that differ from
// the prediction. Every step moves the deficits of all sources. The shares in force and the charges predict them, so a
// source that was not drawn costs no byte.
//
//	version  byte: deltaPlain, or deltaWindow if either state is inside a window or carries segments; plus deltaCounts
//	         if the counts of a source change, plus deltaTrained if its trained labels do
//	count    uvarint, sources listed, ascending; each:
//	  gap      uvarint, sources passed over since the one before
//	  present  byte, one bit for each field that follows
//	  fields   varint each, after minus before; the seek point has six of them
//	  counts   deltaCounts only: two varints, for each listed source
//	  trained  deltaTrained only: a varint, for each listed source
//	window   deltaWindow only: see windowChange
//
// A deficit's field is the rest after the prediction: 0 unless shares changed inside the step, or documents were drawn
// while no source had a share.
type Delta []byte

const (
	deltaPlain   = 1
	deltaWindow  = 2
	deltaCounts  = 4 // added to either
	deltaTrained = 8 // likewise
	deltaNumbers = deltaCounts | deltaTrained
)

// hasWindow reports whether a delta of a known version has a window's part.
func (d Delta) hasWindow() bool { return d[0]&^deltaNumbers == deltaWindow }

// Shares gives the mixture that was in force when a step was drawn. begin is the state at the beginning of its window.
// The caller does not change the result and uses it before the next call.
type Shares interface {
	At(begin *State, at Position) []uint32
}

// Differ makes and applies the deltas of one run. It has one owner and is not for concurrent use.
type Differ struct {
	unit    millrace.Unit
	shares  Shares   // nil: deficits stay as they are
	changes []change // memory of the last delta that was read
}

// NewDiffer returns a Differ for a mixture that counts in a unit. One without shares applies counters only, and cannot
// make deltas.
func NewDiffer(unit millrace.Unit, shares Shares) *Differ { return &Differ{unit: unit, shares: shares} }

// Diff returns the delta from the state before a step to the state after it. legs are those of a window that ends with
// the step. Diff applies the delta once to check it.
func (d *Differ) Diff(before, after State, legs ...Leg) (Delta, error) {
	if after.Step != before.Step+1 || len(after.Sources) != len(before.Sources) || after.Version != before.Version {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"difference of planner states: step %s with %d sources does not follow step %s with %d",
			after.Step, len(after.Sources), before.Step, len(before.Sources))
	}
	charged := int64(0)
	for i := range after.Sources {
		c := changeOf(i, &before.Sources[i], &after.Sources[i])
		charged += c.charge(d.unit)
	}
	window := windowChangeOf(&before, &after, legs)
	listed := make([]change, 0, 16)
	for i, drift := range d.drifts(&before, window, charged) {
		c := changeOf(i, &before.Sources[i], &after.Sources[i])
		c.deficit = after.Sources[i].Deficit - before.Sources[i].Deficit - drift + c.charge(d.unit)*mixing.One
		if c != (change{source: i}) {
			listed = append(listed, c)
		}
	}
	out := encodeDelta(listed, window, after.Sources)
	back := before.Clone()
	err := d.Apply(&back, out)
	if err == nil && !back.Equal(after) {
		err = millrace.Errorf(millrace.ErrInvalid, "the delta leads to another state than the one after the step")
	}
	if err != nil {
		return nil, fmt.Errorf("difference of planner states at step %s: %w", before.Step, err)
	}
	return out, nil
}

// Apply moves a state from before a step to after it. After an error the state is unusable.
func (d *Differ) Apply(st *State, delta Delta) error {
	fail := func(err error) error {
		return millrace.Errorf(millrace.ErrInvalid, "apply the change of step %s to the planner state: %w", st.Step,
			err)
	}
	r, err := d.readChanges(delta, len(st.Sources))
	if err != nil {
		return fail(err)
	}
	var window *windowChange
	if delta.hasWindow() {
		window = r.readWindowChange()
	}
	if d.shares != nil {
		d.moveDeficits(st, window)
	}
	drawn := uint64(0)
	for i := range d.changes {
		c := &d.changes[i]
		c.applyTo(&st.Sources[c.source])
		drawn += uint64(c.tokens)
	}
	if window == nil {
		st.Step++
		st.Tokens += drawn
		return nil
	}
	window.readWaits(r, st.Sources)
	if r.failed || len(r.rest) > 0 || !window.advance(st, drawn) {
		return fail(fmt.Errorf("the window's part of its %d bytes does not fit the state", len(delta)))
	}
	return nil
}

// moveDeficits adds to each deficit the source's share of all charges and the rest of its field, and subtracts its own
// charge.
func (d *Differ) moveDeficits(st *State, window *windowChange) {
	charged := int64(0)
	for i := range d.changes {
		charged += d.changes[i].charge(d.unit)
	}
	for i, drift := range d.drifts(st, window, charged) {
		st.Sources[i].Deficit += drift
	}
	for i := range d.changes {
		c := &d.changes[i]
		st.Sources[c.source].Deficit += c.deficit - c.charge(d.unit)*mixing.One
	}
}

// drifts predicts the growth of each source's target, leg by leg with the shares of the leg's step. The last leg has
// the charges that the others leave.
func (d *Differ) drifts(st *State, window *windowChange, charged int64) []int64 {
	out := make([]int64, len(st.Sources))
	begin := st.Begun()
	at := begin.Position()
	grow := func(charge int64) {
		for i, share := range d.shares.At(&begin, at) {
			out[i] += int64(share) * charge
		}
	}
	if window != nil {
		for _, l := range window.legs {
			grow(l.Charge)
			charged -= l.Charge
			at.Step++
			at.Tokens += l.Tokens
		}
	}
	if charged != 0 {
		grow(charged)
	}
	return out
}

// encodeDelta writes a delta. window is nil for a plain one; sources are those after the step.
func encodeDelta(listed []change, window *windowChange, sources []Source) Delta {
	out := Delta{deltaPlain}
	if window != nil {
		out[0] = deltaWindow
	}
	if slices.ContainsFunc(listed, func(c change) bool { return c.missing != 0 || c.tooLong != 0 }) {
		out[0] |= deltaCounts
	}
	if slices.ContainsFunc(listed, func(c change) bool { return c.trained != 0 }) {
		out[0] |= deltaTrained
	}
	out = binary.AppendUvarint(out, uint64(len(listed)))
	next := 0
	for i := range listed {
		out = appendChange(binary.AppendUvarint(out, uint64(listed[i].source-next)), &listed[i], out[0])
		next = listed[i].source + 1
	}
	if window != nil {
		out = appendWindowChange(out, window, sources)
	}
	return out
}

// readChanges decodes a delta's sources into d.changes. The reader that it returns is at the window's part.
func (d *Differ) readChanges(delta Delta, sources int) (*numbers, error) {
	if len(delta) == 0 || delta[0]&^deltaNumbers != deltaPlain && delta[0]&^deltaNumbers != deltaWindow {
		return nil, fmt.Errorf("its version is none of %d and %d, with or without counts, which this program reads",
			deltaPlain, deltaWindow)
	}
	r := &numbers{rest: delta[1:]}
	d.changes = d.changes[:0]
	next := uint64(0)
	for listed := r.unsigned(max64); listed > 0 && !r.failed; listed-- {
		gap := r.unsigned(max64)
		if gap >= uint64(sources)-next {
			return nil, fmt.Errorf("it lists a source beyond the %d of the state", sources)
		}
		d.changes = append(d.changes, r.readChange(int(next+gap), delta[0]))
		next += gap + 1
	}
	if r.failed || len(r.rest) > 0 != delta.hasWindow() {
		return nil, fmt.Errorf("its %d bytes do not end with its last source", len(delta))
	}
	return r, nil
}
