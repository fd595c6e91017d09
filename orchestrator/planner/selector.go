package planner

import (
	"cmp"
	"fmt"
	"slices"

	"millrace"
	"millrace/internal/seal"
)

// Selector cuts the sources' streams into steps. It never sees the topology. One owner; not for concurrent use.
type Selector struct {
	spec  *Spec
	names []string
	state State // after the last step that was cut
	cut   *cutter

	segments []millrace.Segment // memory of the last draft
	units    []uint32

	draft *draft     // the step being drawn, or nil
	step  *Selection // cut, but not known yet whether it is the last
	tail  *draft     // what looks beyond step
	over  Outcome    // why the run ends; Kind is Finished once it is known

	passing *passing      // a skip under way, or nil
	passed  millrace.Step // one more than the step whose skip is through

	ready []Selection // to be handed out; with last_step drop the newest waits for what follows it
	err   error       // where the stream cannot go on
}

// NewSelector returns a Selector that goes on from a state.
func NewSelector(spec *Spec, st State) (*Selector, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := st.Validate(len(spec.Sources)); err != nil {
		return nil, err
	}
	return &Selector{spec: spec, names: spec.names(), state: st.Clone(), cut: newCutter(spec)}, nil
}

// Advance returns the next step's selection, or that a fact is missing, or that the run is over. What it returns depends on the facts only, never on
// how often it had to wait for them. A last step says so (Last), since Advance looks whether anything could follow it; with last_step drop it therefore
// runs one step ahead of what it returns. Errors are final: the stream cannot go on.
func (s *Selector) Advance(o Offers) (Selection, Outcome, error) {
	for {
		if sel, ok := s.handOut(); ok {
			out := Outcome{Kind: Sealed}
			if sel.Last {
				out.Source, out.Reason, out.Unread = s.over.Source, s.over.Reason, s.over.Unread
			}
			return sel, out, nil
		}
		if s.err != nil {
			return Selection{}, Outcome{}, s.err
		}
		if s.over.Kind == Finished {
			return Selection{}, s.over, nil
		}
		wait, err := s.work(o)
		if err != nil {
			s.err = err
		} else if wait != nil {
			return Selection{}, Outcome{Kind: Waiting, Source: wait.source, Ordinal: wait.ordinal}, nil
		}
	}
}

// handOut takes the oldest selection that may be delivered.
func (s *Selector) handOut() (sel Selection, ok bool) {
	if len(s.ready) == 0 {
		return sel, false
	}
	settled := s.err != nil || s.over.Kind == Finished
	if s.spec.LastStep == DropLast && len(s.ready) == 1 && !settled {
		return sel, false
	}
	sel = s.ready[0]
	s.ready = slices.Delete(s.ready, 0, 1)
	return sel, true
}

// work goes on with the step in hand: until it is cut and settled, the run is over, or a fact is missing.
func (s *Selector) work(o Offers) (*missing, error) {
	if s.step == nil {
		if done := s.reached(s.state); done {
			return nil, nil
		}
		if wait, err := s.pass(o); wait != nil || err != nil {
			return wait, err
		}
		wait, err := s.drawStep(o)
		if wait != nil || err != nil || s.step == nil {
			return wait, err
		}
	}
	return s.settle(o)
}

// reached ends the run where the state has the steps or tokens asked for.
func (s *Selector) reached(st State) bool {
	switch {
	case s.spec.StopSteps > 0 && uint64(st.Step) >= s.spec.StopSteps:
		s.over = Outcome{Kind: Finished, Reason: StepsReached}
	case s.spec.StopTokens > 0 && st.Tokens >= s.spec.StopTokens:
		s.over = Outcome{Kind: Finished, Reason: TokensReached}
	default:
		return false
	}
	return true
}

// drawStep draws and cuts a step into s.step, or finds that there is nothing left to draw.
func (s *Selector) drawStep(o Offers) (*missing, error) {
	if s.draft == nil {
		d, err := newDraft(s.spec, s.state)
		if err != nil {
			return nil, err
		}
		// What a step draws is copied when it is cut, so that the next can draw into the same memory.
		d.segments, d.units = s.segments[:0], s.units[:0]
		s.draft = d
	}
	d := s.draft
	if wait, err := d.draw(o); wait != nil || err != nil {
		return wait, err
	}
	n, bins := s.cut.cut(d.units, &d.walk.stage)
	if n == len(d.segments) && d.end == endFailed {
		return nil, &ExhaustedError{Source: s.names[d.failed], Step: s.state.Step}
	}
	if n == 0 {
		if s.state.Tokens == 0 {
			return nil, fmt.Errorf("plan step %s: no source that can receive weight holds a token; check the paths and the weights: %w",
				s.state.Step, millrace.ErrInvalid)
		}
		s.finish(d)
		return nil, nil
	}
	sel, err := s.seal(d, n, bins)
	if err != nil {
		return nil, err
	}
	s.draft, s.step = nil, sel
	s.segments, s.units = d.segments, d.units
	return nil, nil
}

// settle finds out whether s.step is the last, and makes it ready.
func (s *Selector) settle(o Offers) (*missing, error) {
	if s.step.Incomplete || !s.reached(s.step.After) {
		if s.tail == nil {
			d, err := newDraft(s.spec, s.step.After)
			if err != nil {
				return nil, err
			}
			s.tail = d
		}
		more, wait, err := s.tail.more(o)
		if wait != nil {
			return wait, nil
		}
		if !more && err == nil {
			s.adoptTail()
			s.finish(s.tail)
		}
	}
	sel := s.step
	sel.Last = s.over.Kind == Finished
	sel.After.anchor(o)
	s.state, s.step, s.tail = sel.After, nil, nil
	if sel.Incomplete && s.spec.LastStep == DropLast {
		return nil, s.drop(sel)
	}
	s.ready = append(s.ready, *sel)
	return nil, nil
}

// drop leaves an incomplete last step out: the one before it becomes the last.
func (s *Selector) drop(sel *Selection) error {
	if len(s.ready) > 0 {
		s.ready[len(s.ready)-1].Last = true
		return nil
	}
	if sel.Step == 0 {
		return fmt.Errorf("plan: the sources hold %d of a step's %d sequences and last_step is drop, so nothing is left to deliver; say pad: %w",
			sel.NumBins, sel.GlobalBatch, millrace.ErrInvalid)
	}
	return nil
}

// finish notes why a draft found nothing more.
func (s *Selector) finish(d *draft) {
	s.over = Outcome{Kind: Finished, Reason: SourcesThrough}
	if stop, ok := s.spec.stoppedBy(&d.walk.state); ok {
		s.over.Reason, s.over.Source = SourceStopped, stop
	}
	for i, src := range d.walk.state.Sources {
		if !src.Finished {
			s.over.Unread = append(s.over.Unread, s.names[i])
		}
	}
}

// adoptTail gives the last step what looking beyond it consumed. A stop is seen before the others are known, so then it is the stop alone.
func (s *Selector) adoptTail() {
	if stop, ok := s.spec.stoppedBy(&s.tail.walk.state); ok {
		s.step.After.Sources[stop].Finished = true
		return
	}
	step := s.step.After.Step
	s.step.After = s.tail.walk.after()
	s.step.After.Step = step
	s.step.reject(s.tail.passed)
}

// seal makes the selection of the first n draws.
func (s *Selector) seal(d *draft, n, bins int) (*Selection, error) {
	spec := s.spec
	in := &d.walk.stage
	sel := &Selection{
		Step: s.state.Step, Segments: slices.Clone(d.segments[:n]), Bin: slices.Clone(s.cut.bin[:n]), NumBins: bins,
		GlobalBatch: in.GlobalBatch, SequenceLength: in.SequenceLength, MicroBatch: in.MicroBatch, PadMultiple: max(spec.PadMultiple, 1),
	}
	sel.Stats = Stats{Drawn: len(d.segments), Packs: s.cut.packs, Sources: make([]SourceStats, len(spec.Sources))}
	w, err := newWalk(spec, s.state)
	if err != nil {
		return nil, err
	}
	for i, share := range w.shares {
		sel.Stats.Sources[i].Share = share
	}
	next := 0
	for i := range sel.Segments {
		next = w.replay(d.passed, next, i)
		w.place(&sel.Segments[i])
	}
	if over := n == len(d.segments) && (d.end == endAll || d.end == endStop); over {
		next = w.replay(d.passed, next, n)
		sel.Incomplete = bins < in.GlobalBatch
	}
	sel.After = w.after()
	sel.reject(d.passed[:next])
	sel.count(d.units[:n])
	sel.Content = seal.Content(s.names, sel.Segments)
	return sel, nil
}

// reject lists the documents that counted nothing.
func (sel *Selection) reject(events []passed) {
	for i := range events {
		p := &events[i]
		switch {
		case p.left:
		case p.meta.Reject == "":
			sel.Stats.Sources[p.source].Empty++
		default:
			sel.Stats.Sources[p.source].Rejects++
			sel.Rejects = append(sel.Rejects, Rejected{Source: uint32(p.source), SampleMeta: p.meta})
		}
	}
	slices.SortFunc(sel.Rejects, func(a, b Rejected) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Ordinal, b.Ordinal))
	})
}

func (sel *Selection) count(units []uint32) {
	st := &sel.Stats
	for i := range sel.Segments {
		seg := &sel.Segments[i]
		st.Tokens += uint64(seg.Length)
		st.Padded += uint64(units[i]) * uint64(sel.PadMultiple)
		st.Sources[seg.Source].Tokens += uint64(seg.Length)
		if seg.Offset == 0 {
			st.Sources[seg.Source].Samples++
		}
	}
	st.FillPPM = mulDiv(st.Padded, 1_000_000, uint64(sel.GlobalBatch)*uint64(sel.SequenceLength))
}
