package planner

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/internal/seal"
	"millrace/orchestrator/planner/pack"
)

// Leg is a step's share of a window's draws: what they were charged together, and their document tokens. It tells a Differ how far the mixture
// moved, since the draws of a step follow the mixture of that step, wherever in the window they are placed.
type Leg struct {
	Charge int64
	Tokens uint64
}

// leg is a step's share of the draws: the segments from first on.
type leg struct {
	first  int
	at     point
	shares []uint32
}

// reaches tells whether the pool surely fills that many steps.
func (d *draft) reaches(steps int) bool {
	in := &d.walk.stage
	bins := uint64(steps) * uint64(in.GlobalBatch)
	units := bins * uint64(d.walk.spec.binUnits(in))
	switch in.Packing {
	case millrace.Pad, millrace.Bucketed:
		return uint64(len(d.segments)) >= bins
	case millrace.Concat:
		return d.total >= units
	default:
		return d.total > units
	}
}

// full tells whether the pool is what the window is packed from. With carry, that is some bins more than the window has, so that the worst can be
// left, of about half the segments that may wait; and just so much more than a whole number of bins that few segments find no room.
func (d *draft) full() bool {
	if !d.reaches(d.steps) {
		return false
	}
	in := &d.walk.stage
	carry := d.walk.spec.carry(in)
	switch {
	case carry == 0:
		return true
	case in.Packing == millrace.Bucketed:
		return len(d.segments) >= d.steps*in.GlobalBatch+carry
	}
	bin := uint64(d.walk.spec.binUnits(in))
	more := min(d.total*uint64(carry)/uint64(2*len(d.segments))/bin, uint64(in.GlobalBatch/4))
	least := (uint64(d.steps*in.GlobalBatch) + more) * bin
	return d.total > least && ((d.total-1)%bin <= bin/16 || d.total > least+(more+1)*bin)
}

// turn goes on to the next step's share of the draws where this one's is through, or ends the window there.
func (d *draft) turn() {
	for len(d.legs) < d.steps && d.reaches(len(d.legs)) {
		begin := d.legs[0].at
		next := point{begin.step + uint64(len(d.legs)), begin.tokens + d.walk.drawn}
		if d.walk.spec.cutsAt(d.walk.at, next) {
			d.steps = len(d.legs)
			return
		}
		d.walk.turn(next)
		d.legs = append(d.legs, leg{first: len(d.segments), at: next, shares: d.walk.shares})
		d.lookAll()
	}
}

// window is a draft being packed.
type window struct {
	*draft
	names []string
	n     int      // of the pool: what is placed or waits; the rest is drawn again
	bin   []uint32 // of each of these, pack.NoBin for one that waits
	bins  int      // that hold something
	packs int
	given bool               // the pool's memory, to the window's only step
	waits []millrace.Segment // in the order of State.Carried
}

// cut packs the pool. What would wait too long if it waited for another window is packed first.
func (w *window) cut(c *pack.Cutter) {
	var urgent []uint32
	most := MostWaits
	if w.walk.stage.Packing == millrace.Bucketed {
		most = BucketWaits
	}
	for i, age := range w.ages {
		if int(age)+w.steps > most {
			urgent = append(urgent, uint32(i))
		}
	}
	slices.SortStableFunc(urgent, func(a, b uint32) int { return cmp.Compare(w.units[b], w.units[a]) })
	w.n, w.bins = c.Cut(w.units, w.walk.spec.window(&w.walk.stage, w.steps), len(w.ages), urgent)
	w.bin, w.packs = c.Bin[:w.n], c.Packs
}

// whole tells whether all of the pool has a bin, so that nothing of it is left to a later window.
func (w *window) whole() bool {
	return w.n == len(w.segments) && !slices.Contains(w.bin, pack.NoBin)
}

// seal makes the window's steps.
func (w *window) seal() ([]Selection, error) {
	spec, in := w.walk.spec, &w.walk.stage
	carried := w.carry()
	over := w.n == len(w.segments) && (w.end == endAll || w.end == endStop)
	steps := (w.bins + in.GlobalBatch - 1) / in.GlobalBatch
	out := make([]Selection, steps)
	for k, bins := range w.deal(out) {
		sel := &out[k]
		*sel = Selection{
			Step: w.walk.state.Step + millrace.Step(k), Segments: sel.Segments, Bin: sel.Bin, NumBins: bins,
			GlobalBatch: in.GlobalBatch, SequenceLength: in.SequenceLength, MicroBatch: in.MicroBatch, Stage: in.number, PadMultiple: max(spec.PadMultiple, 1),
			Stats: sel.Stats,
		}
		if in.Packing == millrace.Bucketed {
			longest := uint32(0)
			for i := range sel.Segments {
				longest = max(longest, sel.Segments[i].Length)
			}
			bins := spec.window(in, w.steps)
			sel.SequenceLength >>= bins.Halved(spec.units(longest))
		}
		sel.Incomplete = over && len(carried) == 0 && bins < in.GlobalBatch
		sel.Stats.Sources = make([]SourceStats, len(spec.Sources))
		for i, share := range w.legs[min(k, len(w.legs)-1)].shares {
			sel.Stats.Sources[i].Share = share
		}
		sel.count()
		sel.Content = seal.Content(w.names, sel.Segments)
	}
	first, last := &out[0], &out[steps-1]
	first.Stats.Drawn, first.Stats.Packs = len(w.segments), w.packs
	passed, behind, err := w.replay()
	if err != nil {
		return nil, err
	}
	first.reject(passed)
	w.states(out, behind, carried)
	last.Legs = w.charges()
	return out, nil
}

// states gives every step the state after it: inside the window that at its beginning with what is done, at last the walk's.
func (w *window) states(steps []Selection, behind *walk, carried []Carried) {
	done := Done{}
	for k := range steps {
		done.Steps++
		done.Tokens += steps[k].Stats.Tokens
		if k == len(steps)-1 {
			steps[k].After = behind.after(len(steps), done.Tokens, carried)
			break
		}
		after := w.begin.Clone()
		after.Step += millrace.Step(done.Steps)
		after.Tokens += done.Tokens
		after.Done = done
		steps[k].After = after
	}
}

// carry lists what waits, and leaves it in w.waits in the same order. Neighbours in a document are one: the next window cuts them as it needs them.
func (w *window) carry() (carried []Carried) {
	type waiting struct {
		Carried
		seg millrace.Segment
	}
	var list []waiting
	for i := range w.n {
		if w.bin[i] != pack.NoBin {
			continue
		}
		seg := w.segments[i]
		c := Carried{Source: seg.Source, Ordinal: seg.Ordinal, Offset: seg.Offset, Length: seg.Length, More: seg.More, Age: grown(0, uint32(w.steps))}
		if i < len(w.ages) {
			c.Age = grown(w.ages[i], uint32(w.steps))
		}
		list = append(list, waiting{c, seg})
	}
	slices.SortFunc(list, func(a, b waiting) int { return a.compare(b.Carried) })
	for i, one := range list {
		if n := len(carried); i > 0 && carried[n-1].joins(one.Carried) {
			carried[n-1].Length, carried[n-1].More = carried[n-1].Length+one.Length, one.More
			w.waits[n-1].Length, w.waits[n-1].More = carried[n-1].Length, one.More
			continue
		}
		carried, w.waits = append(carried, one.Carried), append(w.waits, one.seg)
	}
	return carried
}

// replay returns what passed before the end of the segments that are placed or wait, and the walk behind them.
func (w *window) replay() ([]passed, *walk, error) {
	if w.n == len(w.segments) {
		return w.passed, w.walk, nil
	}
	walk, err := newWalk(w.walk.division, w.begin)
	if err != nil {
		return nil, nil, err
	}
	next, legs := 0, w.legs[1:]
	for i := len(w.ages); i < w.n; i++ {
		for len(legs) > 0 && legs[0].first == i {
			walk.turn(legs[0].at)
			legs = legs[1:]
		}
		next = walk.replay(w.passed, next, i)
		walk.place(&w.segments[i])
	}
	return w.passed[:next], walk, nil
}

// charges sums up the legs, as far as they are not drawn again.
func (w *window) charges() []Leg {
	if len(w.legs) == 1 {
		return nil
	}
	out := make([]Leg, 0, len(w.legs))
	for k, l := range w.legs {
		end := w.n
		if k+1 < len(w.legs) {
			end = min(end, w.legs[k+1].first)
		}
		var sum Leg
		for i := max(l.first, len(w.ages)); i < end; i++ {
			seg := &w.segments[i]
			sum.Charge += w.walk.charge(seg.Offset, seg.Length)
			sum.Tokens += uint64(seg.Length)
		}
		out = append(out, sum)
	}
	return out
}
