package planner

import (
	"slices"

	"millrace"
	"millrace/orchestrator/planner/progress"
)

// draw draws until the bins are full, the run ends or metadata is missing.
func (d *draft) draw(o Offers) (*missing, error) {
	for d.end == endNot {
		d.nextLeg()
		if d.isFull() {
			break
		}
		source, wait, err := d.choose(o)
		if wait != nil || err != nil {
			return wait, err
		}
		if d.end != endNot {
			break
		}
		d.segments = append(d.segments, millrace.Segment{}) // filled in place: a segment is expensive to copy
		seg := &d.segments[len(d.segments)-1]
		d.heads.fill(d.replay, source, d.most(), seg)
		if err := d.replay.spec.leaveOut(o, &d.heads.metas[source], seg); err != nil {
			return nil, err
		}
		d.note(seg)
		d.replay.consume(seg)
		d.stale = append(d.stale, source)
		d.heads.forget(d.replay, seg)
		d.count(seg)
	}
	return nil, nil
}

// note counts a document with notes when its first segment was drawn.
func (d *draft) note(seg *millrace.Segment) {
	meta := &d.heads.metas[seg.Source]
	if meta.Refused == 0 || seg.Offset > 0 {
		return
	}
	d.replay.note(int(seg.Source), meta)
	d.passed = append(d.passed, passed{before: len(d.segments) - 1, source: int(seg.Source), drawn: true, meta: *meta})
}

// drawsWhole reports whether a document that has begun is drawn to its end before any other.
func (d *draft) drawsWhole() bool {
	return d.replay.spec.Unit == millrace.UnitSamples || d.replay.stage.Packing == millrace.Concat
}

// choose returns the source of the next segment, or sets end.
func (d *draft) choose(o Offers) (source int, wait *missing, err error) {
	if d.drawsWhole() {
		for i := range d.replay.state.Sources {
			if d.replay.state.Sources[i].Offset > 0 {
				a, err := d.heads.resolve(d.replay, o, i)
				if err == nil && a == Ended {
					err = d.vanished(i)
				}
				return i, d.waitFor(i, a), err
			}
		}
	}
	for {
		changed, wait, err := d.update(o)
		if wait != nil || err != nil || d.end != endNot {
			return -1, wait, err
		}
		if !changed {
			break
		}
	}
	return d.replay.mix.Next(), nil, nil
}

// update computes the stale sizes of sources that have a share, removes sources that ended, and sets end when the run
// is over. It reports whether shares changed. The caller then calls it again. Sources that end together are one event.
func (d *draft) update(o Offers) (changed bool, wait *missing, err error) {
	if !hasShare(d.replay.shares) {
		d.end = endAll
		return false, nil, nil
	}
	var ended []int
	for _, i := range d.stale {
		if d.replay.shares[i] == 0 {
			d.replay.mix.SetSize(i, -1)
			continue
		}
		a, err := d.heads.resolve(d.replay, o, i)
		if err == nil && a == Ended && d.replay.state.Sources[i].Offset > 0 {
			err = d.vanished(i)
		}
		if wait := d.waitFor(i, a); wait != nil || err != nil {
			return false, wait, err
		}
		if a == Ended {
			d.replay.mix.SetSize(i, -1)
			ended = append(ended, i)
			continue
		}
		size := d.heads.rest(d.replay, i)
		if !d.drawsWhole() {
			size = min(size, d.replay.stage.SequenceLength)
		}
		d.replay.mix.SetSize(i, d.replay.charge(i, d.replay.state.Sources[i].Offset, size))
	}
	d.stale = d.stale[:0]
	if len(ended) == 0 {
		return false, nil, nil
	}
	d.markStale()
	return true, nil, d.handleEnded(ended)
}

// vanished is the error for a source that ends inside a document.
func (d *draft) vanished(source int) error {
	at := &d.replay.state.Sources[source]
	return millrace.Errorf(millrace.ErrMismatch,
		"plan step %s: source %q ends before document %s, of which %d tokens are placed already; "+
			"the source lost documents: restore the source files",
		d.replay.state.Step, d.replay.spec.Sources[source].Name, at.Ordinal, at.Offset)
}

// handleEnded acts on sources that ended. A stop has precedence over a failure: it ends the run regularly.
func (d *draft) handleEnded(ended []int) error {
	sources := d.replay.spec.Sources
	first := func(on millrace.OnExhausted) int {
		return slices.IndexFunc(ended, func(i int) bool { return sources[i].OnExhausted == on })
	}
	if i := first(millrace.StopRun); i >= 0 {
		d.end = endStop
		d.remove(ended[i])
		return nil
	}
	if i := first(millrace.FailRun); i >= 0 {
		d.end, d.failed = endFailed, ended[i]
		return nil
	}
	if i := first(millrace.Repeat); i >= 0 {
		return d.replay.emptySource(ended[i])
	}
	for _, i := range ended {
		if at := &d.replay.state.Sources[i]; sources[i].Filters != "" && at.Ordinal > 0 && at.Samples == 0 {
			return d.replay.emptySource(i)
		}
	}
	for _, i := range ended {
		d.remove(i)
	}
	return nil
}

func (d *draft) remove(source int) {
	d.passed = append(d.passed, passed{before: len(d.segments), source: source, left: true})
	d.replay.removeSource(source)
}

// waitFor names a source's next document if its metadata is pending.
func (d *draft) waitFor(source int, a Availability) *missing {
	if a != Pending {
		return nil
	}
	return &missing{source, d.replay.state.Sources[source].Ordinal}
}

// canDraw reports whether a new draft can draw anything. It asks for no more metadata than the answer needs. If nothing
// can be drawn (endAll), it has consumed the rest: documents without tokens, and sources that leave.
func (d *draft) canDraw(o Offers) (can bool, wait *missing, err error) {
	for !d.isInsideDocument() {
		if !hasShare(d.replay.shares) {
			d.end = endAll
			return false, nil, nil
		}
		if over, wait := d.stopEarly(o); over || wait != nil {
			return false, wait, nil
		}
		var wait *missing
		var ended []int
		for i, share := range d.replay.shares {
			if share == 0 {
				continue
			}
			switch a, err := d.heads.resolve(d.replay, o, i); {
			case err != nil || a == Ready:
				return true, nil, err // the next step finds an error again, and returns it
			case a == Ended:
				ended = append(ended, i)
			case wait == nil:
				wait = d.waitFor(i, a)
			}
		}
		if wait != nil {
			return false, wait, nil
		}
		if err := d.handleEnded(ended); err != nil || d.end == endFailed {
			return true, nil, err // the next step finds it again
		}
	}
	return true, nil, nil
}

// stopEarly sets end if a source with on_exhausted: stop has ended. It needs no metadata of the other sources.
func (d *draft) stopEarly(o Offers) (over bool, wait *missing) {
	for i, share := range d.replay.shares {
		if share == 0 || d.replay.spec.Sources[i].OnExhausted != millrace.StopRun {
			continue
		}
		a, err := d.heads.resolve(d.replay, o, i)
		if err == nil && a == Ended {
			d.end = endStop
			d.remove(i)
			return true, nil
		}
		if err == nil && wait == nil {
			wait = d.waitFor(i, a)
		}
	}
	return false, wait
}

// isInsideDocument reports whether the window before cut a document that must be drawn to its end first.
func (d *draft) isInsideDocument() bool {
	return d.drawsWhole() &&
		slices.ContainsFunc(d.replay.state.Sources, func(s progress.Source) bool { return s.Offset > 0 })
}
