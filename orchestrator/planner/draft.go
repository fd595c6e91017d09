package planner

import (
	"millrace"
	"millrace/orchestrator/planner/pack"
	"millrace/orchestrator/planner/progress"
)

// end is the reason why drawing stopped before the bins were full.
type end uint8

const (
	endNot    end = iota // more can be drawn, or the bins are full
	endAll               // no source that is left can receive weight
	endStop              // a stop source ended
	endFailed            // an error source ended
)

// draft is a window while it is drawn. If metadata is missing it keeps its segments, and continues at the next call.
type draft struct {
	begin  progress.State // before the window
	replay *replay
	heads  *heads
	stale  []int // sources whose size in replay.mix is not up to date
	steps  int   // of the window
	legs   []leg // one for each step begun

	segments []millrace.Segment // carried segments, then those drawn
	units    []uint32           // of each segment
	sources  []uint32           // of each segment
	charged  []int64            // to the source of each segment
	total    uint64             // sum of units
	ladder   pack.Ladder        // with token rows
	shares   uint64             // sum of the segments' shares of sequences, with token rows
	lengths  octaves            // of the units of all segments
	ages     []uint32           // of the carried segments
	resumed  int                // carried segments of begin that are in segments
	passed   []passed           // events between segments

	end    end
	failed int // the source, for endFailed
}

// leg is one step's share of the draws: the segments from first on, up to the next leg.
type leg struct {
	first  int
	at     progress.Position
	shares []uint32
}

// newDraft begins a window at the state before it.
func newDraft(division *division, before progress.State) (*draft, error) {
	spec := division.spec
	r, err := newReplay(division, before)
	if err != nil {
		return nil, err
	}
	d := &draft{begin: before, replay: r, steps: spec.windowFrom(&before),
		legs: []leg{{at: r.at, shares: r.shares}}}
	d.heads = newHeads(len(spec.Sources), func(source int, meta millrace.SampleMeta) {
		d.passed = append(d.passed, passed{before: len(d.segments), source: source, meta: meta})
	})
	if spec.hasTokenRows(&r.stage) {
		d.ladder = pack.NewLadder(spec.binUnits(&r.stage))
	}
	d.markStale()
	return d, nil
}

// markStale marks every source's size as out of date.
func (d *draft) markStale() {
	d.stale = d.stale[:0]
	for i := range d.replay.shares {
		d.stale = append(d.stale, i)
	}
}

// isEnough reports whether the draft surely fills that many steps.
func (d *draft) isEnough(steps int) bool {
	in := &d.replay.stage
	bins := uint64(steps) * uint64(in.GlobalBatch)
	units := bins * uint64(d.replay.spec.binUnits(in))
	switch {
	case d.ladder != nil:
		return d.shares >= bins*pack.Whole
	case in.Packing == millrace.Pad, in.Packing == millrace.Bucketed:
		return uint64(len(d.segments)) >= bins
	case in.Packing == millrace.Concat:
		return d.total >= units
	default:
		return d.total > units
	}
}

// isFull reports whether the window can be packed. With carry, it wants more segments than the window holds: in a run
// without a pool, more bins, so that the worst ones can be left out. These extra bins hold about half the segments that
// may wait. The draws then end a little above a whole number of bins, so that few segments find no room.
func (d *draft) isFull() bool {
	if !d.isEnough(d.steps) {
		return false
	}
	in, window := &d.replay.stage, d.window()
	carry := window.Carry
	switch {
	case carry == 0:
		return true
	case in.Packing == millrace.Bucketed:
		return len(d.segments) >= d.steps*in.GlobalBatch+carry
	case window.IsPooled:
		return d.hasReserve(&window)
	}
	bin := uint64(d.replay.spec.binUnits(in))
	extra := min(d.total*uint64(carry)/uint64(2*len(d.segments))/bin, uint64(in.GlobalBatch/4))
	least := (uint64(d.steps*in.GlobalBatch) + extra) * bin
	return d.total > least && ((d.total-1)%bin <= bin/16 || d.total > least+(extra+1)*bin)
}

// window returns the bins of the draft.
func (d *draft) window() pack.Window {
	return d.replay.spec.packWindow(&d.replay.stage, d.steps, d.begin.IsPooled())
}

// nextLeg begins the next step's leg once this one is drawn, or ends the window there.
func (d *draft) nextLeg() {
	for len(d.legs) < d.steps && d.isEnough(len(d.legs)) {
		begin := d.legs[0].at
		next := progress.Position{Step: begin.Step + uint64(len(d.legs)), Tokens: begin.Tokens + d.replay.drawn}
		if d.replay.spec.cutsAt(d.replay.at, next) {
			d.steps = len(d.legs)
			return
		}
		d.replay.beginLeg(next)
		d.legs = append(d.legs, leg{first: len(d.segments), at: next, shares: d.replay.shares})
		d.markStale()
	}
}

// most returns the largest length of the next segment: a whole bin, or with Concat the room that is left in the present
// bin.
func (d *draft) most() uint32 {
	in := &d.replay.stage
	if in.Packing != millrace.Concat {
		return in.SequenceLength
	}
	bin := d.replay.spec.binUnits(in)
	return in.SequenceLength - uint32(d.total%uint64(bin))*max(d.replay.spec.PadMultiple, 1)
}

// count adds the newest segment's units.
func (d *draft) count(seg *millrace.Segment) {
	units := d.replay.spec.units(seg.Length)
	d.units = append(d.units, units)
	d.sources = append(d.sources, seg.Source)
	d.charged = append(d.charged, d.replay.charge(int(seg.Source), seg.Offset, seg.Length))
	d.total += uint64(units)
	d.lengths.add(units)
	if d.ladder != nil {
		d.shares += d.ladder.Share(units)
	}
}

// resume takes the carried segments. known has the first ones, in the order of State.Carried. The others are made again
// from their metadata.
func (d *draft) resume(known []millrace.Segment, o Offers) (*missing, error) {
	for _, c := range d.begin.Carried[d.resumed:] {
		var seg millrace.Segment
		if d.resumed < len(known) && !d.cutsLabels(&known[d.resumed]) {
			seg = known[d.resumed]
		} else {
			var wait *missing
			var err error
			if seg, wait, err = d.recall(c, o); wait != nil || err != nil {
				return wait, err
			}
		}
		d.resumed++
		if err := d.takeCarried(seg, c.Age, o); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// cutsLabels reports whether a carried segment is cut so that its labels are counted anew.
func (d *draft) cutsLabels(seg *millrace.Segment) bool {
	return seg.Length > d.most() && d.replay.spec.Sources[seg.Source].Untrained
}

// takeCarried adds a carried segment: in pieces, if bins have become shorter since it was drawn.
func (d *draft) takeCarried(seg millrace.Segment, age uint32, o Offers) error {
	isCut := d.cutsLabels(&seg)
	for rest, more := seg.Length, seg.More; rest > 0; rest -= seg.Length {
		seg.Length = min(rest, d.most())
		seg.More = more || seg.Length < rest
		if isCut { // recall has seen the offer
			meta, _ := o.Peek(int(seg.Source), seg.Ordinal)
			if err := d.replay.spec.leaveOut(o, &meta, &seg); err != nil {
				return err
			}
		}
		d.segments = append(d.segments, seg)
		d.count(&seg)
		d.ages = append(d.ages, age)
		seg.Offset += seg.Length
		seg.Patches = 0
	}
	return nil
}

// recall makes a carried segment from its document's metadata. A document that can no longer be decoded keeps its
// segment, since it was drawn already.
func (d *draft) recall(c progress.Carried, o Offers) (seg millrace.Segment, wait *missing, err error) {
	meta, a := o.Peek(int(c.Source), c.Ordinal)
	if a == Pending {
		return seg, &missing{int(c.Source), c.Ordinal}, nil
	}
	stop, tokens := uint64(c.Offset)+uint64(c.Length), uint64(meta.Lengths.Tokens)
	if a == Ended || !meta.Rejected && (stop > tokens || c.More != (stop < tokens)) {
		return seg, nil, millrace.Errorf(millrace.ErrMismatch,
			"plan step %s: source %q: tokens %d to %d of document %s wait to be placed, and the document has %d "+
				"tokens; the document changed: restore the source files",
			d.begin.Step, d.replay.spec.Sources[c.Source].Name, c.Offset, stop, c.Ordinal, tokens)
	}
	seg = millrace.Segment{
		Source:  c.Source,
		Ordinal: c.Ordinal,
		Epoch:   meta.Epoch,
		ID:      meta.ID,
		Offset:  c.Offset,
		Length:  c.Length,
		More:    c.More,
	}
	if c.Offset == 0 {
		seg.Patches = meta.Lengths.Patches
	}
	return seg, nil, d.replay.spec.leaveOut(o, &meta, &seg)
}
