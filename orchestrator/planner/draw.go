package planner

import (
	"slices"

	"millrace"
)

// end tells why drawing stopped before the bins were full.
type end uint8

const (
	endNot    end = iota // more can be drawn, or the bins are full
	endAll               // no source that is left can receive weight
	endStop              // a stop source ended
	endFailed            // an error source ended
)

// draft is a window in the drawing: it keeps what was drawn when a fact is missing, and goes on when called again.
type draft struct {
	begin State // before the window
	walk  *walk
	heads *heads
	sizes []int64 // what each source's next segment would be charged; -1 for none
	moved []int   // sources whose size is not up to date
	steps int     // of the window
	legs  []leg   // each step's share of the draws

	segments []millrace.Segment // the pool: what was carried, then what was drawn
	units    []uint32           // of each segment
	total    uint64             // sum of units
	ages     []uint32           // of what was carried
	resumed  int                // of what the state carries, how much is in the pool
	passed   []passed           // what happened between segments

	end    end
	failed int // the source, for endFailed
}

// passed is a document without tokens or a source's leave, before the segment numbered at.
type passed struct {
	at     int
	source int
	left   bool
	meta   millrace.SampleMeta
}

// newDraft begins a window at the state before it.
func newDraft(division *division, before State) (*draft, error) {
	spec := division.spec
	w, err := newWalk(division, before)
	if err != nil {
		return nil, err
	}
	d := &draft{begin: before, walk: w, sizes: make([]int64, len(spec.Sources)), steps: spec.windowAt(before.Step), legs: []leg{{at: w.at, shares: w.shares}}}
	d.heads = newHeads(len(spec.Sources), func(source int, meta millrace.SampleMeta) {
		d.passed = append(d.passed, passed{at: len(d.segments), source: source, meta: meta})
	})
	d.lookAll()
	return d, nil
}

// missing is the fact that drawing waits for.
type missing struct {
	source  int
	ordinal millrace.Ordinal
}

// draw draws until the bins are full, the run ends or a fact is missing.
func (d *draft) draw(o Offers) (*missing, error) {
	for d.end == endNot {
		d.turn()
		if d.full() {
			break
		}
		source, wait, err := d.choose(o)
		if wait != nil || err != nil {
			return wait, err
		}
		if d.end != endNot {
			break
		}
		d.segments = append(d.segments, millrace.Segment{}) // where it stays: a segment is long to copy
		seg := &d.segments[len(d.segments)-1]
		d.heads.next(d.walk, source, d.most(), seg)
		d.walk.place(seg)
		d.moved = append(d.moved, source)
		d.heads.take(seg)
		d.weigh(seg)
	}
	return nil, nil
}

// most returns the most tokens of the next segment: those of a bin, or of what is left of it.
func (d *draft) most() uint32 {
	in := &d.walk.stage
	if in.Packing != millrace.Concat {
		return in.SequenceLength
	}
	bin := d.walk.spec.binUnits(in)
	return in.SequenceLength - uint32(d.total%uint64(bin))*max(d.walk.spec.PadMultiple, 1)
}

// goesOn tells whether a document that has begun is drawn to its end at once.
func (d *draft) goesOn() bool {
	return d.walk.spec.Unit == millrace.UnitSamples || d.walk.stage.Packing == millrace.Concat
}

// weigh counts the newest segment of the pool.
func (d *draft) weigh(seg *millrace.Segment) {
	units := d.walk.spec.units(seg.Length)
	d.units = append(d.units, units)
	d.total += uint64(units)
}

// choose returns the source of the next segment, or sets end.
func (d *draft) choose(o Offers) (source int, wait *missing, err error) {
	if d.goesOn() {
		for i := range d.walk.state.Sources {
			if d.walk.state.Sources[i].Offset > 0 {
				a, err := d.heads.resolve(d.walk, o, i)
				if err == nil && a == Ended {
					err = d.vanished(i)
				}
				return i, d.missing(i, a), err
			}
		}
	}
	for {
		changed, wait, err := d.look(o)
		if wait != nil || err != nil || d.end != endNot {
			return -1, wait, err
		}
		if !changed {
			break
		}
	}
	return d.walk.mix.Next(d.sizes), nil, nil
}

// look resolves the heads that moved since the last look, of sources that have a share, lets those leave that ended, and sets end where the
// run is over. It reports whether shares changed, so that it must be asked again. Sources that ended together are one event.
func (d *draft) look(o Offers) (changed bool, wait *missing, err error) {
	if !positive(d.walk.shares) {
		d.end = endAll
		return false, nil, nil
	}
	var ended []int
	for _, i := range d.moved {
		d.sizes[i] = -1
		if d.walk.shares[i] == 0 {
			continue
		}
		a, err := d.heads.resolve(d.walk, o, i)
		if err == nil && a == Ended && d.walk.state.Sources[i].Offset > 0 {
			err = d.vanished(i)
		}
		if wait := d.missing(i, a); wait != nil || err != nil {
			return false, wait, err
		}
		if a == Ended {
			ended = append(ended, i)
			continue
		}
		size := d.heads.left(d.walk, i)
		if !d.goesOn() {
			size = min(size, d.walk.stage.SequenceLength)
		}
		d.sizes[i] = d.walk.charge(d.walk.state.Sources[i].Offset, size)
	}
	d.moved = d.moved[:0]
	if len(ended) == 0 {
		return false, nil, nil
	}
	d.lookAll()
	return true, nil, d.leave(ended)
}

// lookAll makes the next look see every source.
func (d *draft) lookAll() {
	d.moved = d.moved[:0]
	for i := range d.sizes {
		d.moved = append(d.moved, i)
	}
}

func (d *draft) vanished(source int) error {
	at := &d.walk.state.Sources[source]
	return millrace.Errorf(millrace.ErrMismatch, "plan step %s: source %q ends before document %s, of which %d tokens are placed already",
		d.walk.state.Step, d.walk.spec.Sources[source].Name, at.Ordinal, at.Offset)
}

// leave acts on the sources that ended. A stop wins over a failure: the run is over, regularly.
func (d *draft) leave(ended []int) error {
	sources := d.walk.spec.Sources
	first := func(on millrace.OnExhausted) int {
		return slices.IndexFunc(ended, func(i int) bool { return sources[i].OnExhausted == on })
	}
	if i := first(millrace.StopRun); i >= 0 {
		d.end = endStop
		d.leaves(ended[i])
		return nil
	}
	if i := first(millrace.FailRun); i >= 0 {
		d.end, d.failed = endFailed, ended[i]
		return nil
	}
	if i := first(millrace.Repeat); i >= 0 {
		return d.walk.empty(ended[i])
	}
	for _, i := range ended {
		if at := &d.walk.state.Sources[i]; sources[i].Filters != "" && at.Ordinal > 0 && at.Samples == 0 {
			return d.walk.empty(i)
		}
	}
	for _, i := range ended {
		d.leaves(i)
	}
	return nil
}

func (d *draft) leaves(source int) {
	d.passed = append(d.passed, passed{at: len(d.segments), source: source, left: true})
	d.walk.leave(source)
}

func (d *draft) missing(source int, a Availability) *missing {
	if a != Pending {
		return nil
	}
	return &missing{source, d.walk.state.Sources[source].Ordinal}
}

// more tells whether anything can be drawn from here on, asking for no more facts than that takes. The draft must be a fresh one. With endAll it has
// consumed what was left: documents without tokens, and leaves.
func (d *draft) more(o Offers) (more bool, wait *missing, err error) {
	for !d.begun() {
		if !positive(d.walk.shares) {
			d.end = endAll
			return false, nil, nil
		}
		if over, wait := d.stopped(o); over || wait != nil {
			return false, wait, nil
		}
		var wait *missing
		var ended []int
		for i, share := range d.walk.shares {
			if share == 0 {
				continue
			}
			switch a, err := d.heads.resolve(d.walk, o, i); {
			case err != nil || a == Ready:
				return true, nil, err // the next step meets an error again, and reports it
			case a == Ended:
				ended = append(ended, i)
			case wait == nil:
				wait = d.missing(i, a)
			}
		}
		if wait != nil {
			return false, wait, nil
		}
		if err := d.leave(ended); err != nil || d.end == endFailed {
			return true, nil, err // likewise
		}
	}
	return true, nil, nil
}

// stopped sets end where a stop source has ended, whatever is known of the others.
func (d *draft) stopped(o Offers) (over bool, wait *missing) {
	for i, share := range d.walk.shares {
		if share == 0 || d.walk.spec.Sources[i].OnExhausted != millrace.StopRun {
			continue
		}
		a, err := d.heads.resolve(d.walk, o, i)
		if err == nil && a == Ended {
			d.end = endStop
			d.leaves(i)
			return true, nil
		}
		if err == nil && wait == nil {
			wait = d.missing(i, a)
		}
	}
	return false, wait
}

// begun tells whether a document was cut by the end of the window before and goes on.
func (d *draft) begun() bool {
	return d.goesOn() && slices.ContainsFunc(d.walk.state.Sources, func(s SourceState) bool { return s.Offset > 0 })
}
