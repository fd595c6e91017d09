package planner

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/internal/seal"
	"millrace/mixing"
	"millrace/orchestrator/planner/pack"
	"millrace/orchestrator/planner/progress"
)

// window is a draft that is packed into steps. A prefix of its segments is placed or carried. The next window draws the
// others again.
type window struct {
	*draft
	names  []string
	n      int      // segments that are placed or carried
	bin    []uint32 // of each of these; pack.NoBin: it is carried
	bins   int      // with segments
	packs  int
	given  bool               // the only step took over the memory of the draft's segments
	waits  []millrace.Segment // in the order of State.Carried
	counts []int              // bins of each step
	rows   []pack.Rows        // of each step, with token rows
	stepOf []uint32           // of each bin, with token rows
}

// cut packs the draft. Segments that would wait too long if they waited for another window are packed first.
func (w *window) cut(c *pack.Cutter) {
	var urgent []uint32
	in, most := w.window(), progress.MostWaits
	if w.ladder != nil {
		in.Steps = len(w.legs) // segments may fill a further step, of which it is not known that it is alike
	}
	switch {
	case in.Packing == millrace.Bucketed:
		most = progress.BucketWaits
	case in.IsPooled:
		most = min(max(progress.PoolUrgentBins/(in.Steps*in.Batch), progress.PoolUrgentLeast), progress.PoolUrgent)
	}
	for i, age := range w.ages {
		if int(age)+w.steps > most {
			urgent = append(urgent, uint32(i))
		}
	}
	slices.SortStableFunc(urgent, func(a, b uint32) int { return cmp.Compare(w.units[b], w.units[a]) })
	if in.IsPooled && in.Carry > 0 {
		in.Mix = w.mix()
	}
	w.n, w.bins = c.Cut(w.units, in, w.ages, urgent)
	w.bin, w.packs = c.Bin[:w.n], c.Packs
	if w.ladder != nil {
		w.takeRows(c.Rows)
		return
	}
	for at, batch := 0, w.replay.stage.GlobalBatch; at < w.bins; at += batch {
		w.counts = append(w.counts, min(batch, w.bins-at))
	}
}

// mix describes the sources of the segments. The waiting segments were drawn, so they are taken off the state's
// deficits.
func (w *window) mix() pack.Mix {
	m := pack.Mix{Source: w.sources, Charge: w.charged, Share: w.legs[len(w.legs)-1].shares}
	m.Lag = make([]int64, len(m.Share))
	waits, positive, sum := int64(0), int64(0), int64(0)
	for i := range w.ages {
		m.Lag[m.Source[i]] += m.Charge[i] * mixing.One
		waits += m.Charge[i]
	}
	for i, share := range m.Share {
		m.Lag[i] += w.begin.Sources[i].Deficit - int64(share)*waits
		if share > 0 {
			positive, sum = positive+1, sum+m.Lag[i]
		}
	}
	for i := range m.Lag {
		m.Lag[i] -= sum / max(positive, 1)
	}
	return m
}

// isWhole reports whether every segment has a bin, so that no segment is left for a later window.
func (w *window) isWhole() bool {
	return w.n == len(w.segments) && !slices.Contains(w.bin, pack.NoBin)
}

// seal makes the window's steps.
func (w *window) seal() ([]Selection, error) {
	carried := w.carried()
	over := w.n == len(w.segments) && (w.end == endAll || w.end == endStop)
	out := make([]Selection, len(w.counts))
	w.distribute(out)
	for k := range out {
		sel := &out[k]
		w.describe(sel, k)
		sel.Incomplete = over && len(carried) == 0 && sel.NumBins < sel.GlobalBatch
		sel.countTokens(w.replay.spec)
		sel.Content = seal.Content(w.names, sel.Segments)
	}
	first, last := &out[0], &out[len(out)-1]
	first.Stats.Drawn, first.Stats.Packs = len(w.segments), w.packs
	passed, end, err := w.replayKept()
	if err != nil {
		return nil, err
	}
	first.reject(passed)
	w.setStates(out, end, carried)
	last.Legs = w.charges()
	return out, nil
}

// describe fills in the settings of step number k of the window.
func (w *window) describe(sel *Selection, k int) {
	spec, in := w.replay.spec, &w.replay.stage
	sel.Step, sel.NumBins = w.replay.state.Step+millrace.Step(k), w.counts[k]
	sel.GlobalBatch, sel.SequenceLength, sel.MicroBatch = in.GlobalBatch, in.SequenceLength, in.MicroBatch
	sel.Stage, sel.PadMultiple, sel.Counted = in.number, max(spec.PadMultiple, 1), spec.hasUntrained()
	switch {
	case w.ladder != nil:
		sel.SequenceLength, sel.Times = w.rows[k].Length*sel.PadMultiple, w.rows[k].Times
		sel.GlobalBatch *= int(sel.Times)
	case in.Packing == millrace.Bucketed:
		longest := uint32(0)
		for i := range sel.Segments {
			longest = max(longest, sel.Segments[i].Length)
		}
		bins := w.window()
		sel.SequenceLength >>= bins.Halved(spec.units(longest))
	}
	sel.Stats.Sources = make([]SourceStats, len(spec.Sources))
	for i, share := range w.legs[min(k, len(w.legs)-1)].shares {
		sel.Stats.Sources[i].Share = share
	}
}

// distribute gives each step its segments, in draw order, with their bins.
func (w *window) distribute(steps []Selection) {
	if w.isAsDrawn(steps) {
		steps[0].Segments, steps[0].Bin, w.given = w.segments[:w.n:w.n], slices.Clone(w.bin), true
		return
	}
	step := w.stepOfBins()
	number := numbered(step, len(steps))
	drawn := 0 // leg of segment i
	for i := range w.n {
		for drawn+1 < len(w.legs) && w.legs[drawn+1].first <= i {
			drawn++
		}
		b := w.bin[i]
		if b == pack.NoBin {
			continue
		}
		sel := &steps[step[b]]
		if sel.Segments == nil {
			most := w.n/len(steps) + w.n/len(steps)/8 + 1
			sel.Segments, sel.Bin = make([]millrace.Segment, 0, most), make([]uint32, 0, most)
		}
		sel.Segments, sel.Bin = append(sel.Segments, w.segments[i]), append(sel.Bin, number[b])
		from := drawn
		if i < len(w.ages) {
			from = -int(w.ages[i])
		}
		sel.Stats.move(max(from-int(step[b]), int(step[b])-from))
	}
}

// isAsDrawn reports whether the window is one step that holds all its draws, in draw order.
func (w *window) isAsDrawn(steps []Selection) bool {
	return len(steps) == 1 && len(w.legs) == 1 && len(w.ages) == 0 && !slices.Contains(w.bin, pack.NoBin)
}

// stepOfBins returns the step of each bin.
func (w *window) stepOfBins() []uint32 {
	switch {
	case w.ladder != nil:
		return w.stepOf
	case w.replay.stage.Packing == millrace.Bucketed:
		return inOrder(w.bins, w.replay.stage.GlobalBatch)
	case len(w.counts) == 1:
		return make([]uint32, w.bins)
	}
	squares := make([]uint64, w.bins)
	for i, b := range w.bin {
		if b != pack.NoBin {
			squares[b] += uint64(w.segments[i].Length) * uint64(w.segments[i].Length)
		}
	}
	return byStrata(w.counts, squares)
}

// setStates gives every step the state after it. Inside the window that is the state at its beginning, with Done set.
// After the last step it is the state at the end of the replay.
func (w *window) setStates(steps []Selection, end *replay, carried []progress.Carried) {
	done := progress.Done{}
	for k := range steps {
		done.Steps++
		done.Tokens += steps[k].Stats.Tokens
		if k == len(steps)-1 {
			steps[k].After = end.stateAfter(len(steps), done.Tokens, carried)
			break
		}
		after := w.begin.Clone()
		after.Step += millrace.Step(done.Steps)
		after.Tokens += done.Tokens
		after.Done = done
		steps[k].After = after
	}
}

// carried returns the segments that wait, and keeps their metadata in w.waits in the same order. Neighbouring segments
// of a document become one, which the next window cuts again as it needs.
func (w *window) carried() (list []progress.Carried) {
	type waiting struct {
		progress.Carried
		seg millrace.Segment
	}
	var all []waiting
	for i := range w.n {
		if w.bin[i] != pack.NoBin {
			continue
		}
		seg, age := w.segments[i], uint32(0)
		if i < len(w.ages) {
			age = w.ages[i]
		}
		all = append(all, waiting{progress.Carried{
			Source: seg.Source, Ordinal: seg.Ordinal, Offset: seg.Offset, Length: seg.Length, More: seg.More,
			Age: progress.Older(age, uint32(w.steps)),
		}, seg})
	}
	slices.SortFunc(all, func(a, b waiting) int { return a.Compare(b.Carried) })
	for i, one := range all {
		if n := len(list); i > 0 && list[n-1].Joins(one.Carried) {
			list[n-1].Length, list[n-1].More = list[n-1].Length+one.Length, one.More
			w.waits[n-1].Length, w.waits[n-1].More = list[n-1].Length, one.More
			w.waits[n-1].Untrained += one.seg.Untrained
			continue
		}
		list, w.waits = append(list, one.Carried), append(w.waits, one.seg)
	}
	return list
}

// replayKept returns the replay at the end of the segments that are placed or carried, and the events before that end.
func (w *window) replayKept() ([]passed, *replay, error) {
	if w.n == len(w.segments) {
		return w.passed, w.replay, nil
	}
	r, err := newReplay(w.replay.division, w.begin)
	if err != nil {
		return nil, nil, err
	}
	next, legs := 0, w.legs[1:]
	for i := len(w.ages); i < w.n; i++ {
		for len(legs) > 0 && legs[0].first == i {
			r.beginLeg(legs[0].at)
			legs = legs[1:]
		}
		next = r.repeat(w.passed, next, i)
		r.consume(&w.segments[i])
	}
	return w.passed[:next], r, nil
}

// charges sums up the legs, without the segments that are drawn again.
func (w *window) charges() []progress.Leg {
	if len(w.legs) == 1 {
		return nil
	}
	out := make([]progress.Leg, 0, len(w.legs))
	for k, l := range w.legs {
		end := w.n
		if k+1 < len(w.legs) {
			end = min(end, w.legs[k+1].first)
		}
		var sum progress.Leg
		for i := max(l.first, len(w.ages)); i < end; i++ {
			seg := &w.segments[i]
			sum.Charge += w.replay.charge(int(seg.Source), seg.Offset, seg.Length)
			sum.Tokens += uint64(seg.Length)
		}
		out = append(out, sum)
	}
	return out
}
