package planner

import (
	"slices"

	"millrace"
	"millrace/orchestrator/planner/pack"
)

// Selector cuts the sources' streams into steps. It never sees the topology. One owner; not for concurrent use.
type Selector struct {
	spec  *Spec
	names []string
	state State              // where the next window begins, but for what is Done of it
	waits []millrace.Segment // what state carries, where it is known already
	cut   *pack.Cutter

	division division
	segments []millrace.Segment // memory of the last draft
	units    []uint32

	draft *draft      // the window being drawn, or nil
	steps []Selection // of a window that is packed, but not known yet whether it is the last
	tail  *draft      // what looks beyond it
	over  Outcome     // why the run ends; Kind is Finished once it is known

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
	return &Selector{spec: spec, names: spec.names(), state: st.Clone(), cut: new(pack.Cutter), division: division{spec: spec}}, nil
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
	if s.spec.LastStep == millrace.DropLast && len(s.ready) == 1 && !settled {
		return sel, false
	}
	sel = s.ready[0]
	s.ready = slices.Delete(s.ready, 0, 1)
	return sel, true
}

// work goes on with the window in hand: until it is packed and settled, the run is over, or a fact is missing.
func (s *Selector) work(o Offers) (*missing, error) {
	if s.steps == nil {
		if done := s.reached(s.state); done {
			return nil, nil
		}
		if wait, err := s.pass(o); wait != nil || err != nil {
			return wait, err
		}
		wait, err := s.drawWindow(o)
		if wait != nil || err != nil || s.steps == nil {
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

// drawWindow draws and packs a window into s.steps, or finds that there is nothing left to draw.
func (s *Selector) drawWindow(o Offers) (*missing, error) {
	if s.draft == nil {
		d, err := newDraft(&s.division, s.state.begun())
		if err != nil {
			return nil, err
		}
		// What a window draws is dealt out when it is cut, so that the next can mostly draw into the same memory.
		d.segments, d.units = s.segments[:0], s.units[:0]
		s.draft = d
	}
	d := s.draft
	if wait, err := d.resume(s.waits, o); wait != nil || err != nil {
		return wait, err
	}
	if wait, err := d.draw(o); wait != nil || err != nil {
		return wait, err
	}
	w := &window{draft: d, names: s.names}
	w.cut(s.cut)
	if w.whole() && d.end == endFailed {
		return nil, &ExhaustedError{Source: s.names[d.failed], Step: s.state.Step}
	}
	if w.n == 0 {
		if s.state.Tokens == 0 {
			return nil, millrace.Errorf(millrace.ErrInvalid, "plan step %s: no source that can receive weight holds a token; check the paths and the weights",
				s.state.Step)
		}
		s.finish(d)
		return nil, nil
	}
	steps, err := w.seal()
	if err != nil {
		return nil, err
	}
	if steps, err = s.undone(steps); err != nil {
		return nil, err
	}
	s.draft, s.steps, s.waits = nil, steps, w.waits
	s.segments, s.units = d.segments, d.units
	if w.given {
		s.segments = make([]millrace.Segment, 0, cap(d.segments))
	}
	return nil, nil
}

// undone leaves out the steps of a window that are behind. What they held shows in their tokens: other documents than then give other windows.
func (s *Selector) undone(steps []Selection) ([]Selection, error) {
	done := s.state.Done
	if done == (Done{}) {
		return steps, nil
	}
	if int(done.Steps) >= len(steps) || steps[done.Steps-1].After.Done != done {
		return nil, millrace.Errorf(millrace.ErrMismatch, "plan step %s: the window from step %s on, of which %d steps are behind, does not come out as it was: the sources hold other documents than they did",
			s.state.Step, s.state.begun().Step, done.Steps)
	}
	return steps[done.Steps:], nil
}

// settle finds out whether the run ends with the window, or inside it, and makes its steps ready.
func (s *Selector) settle(o Offers) (*missing, error) {
	for i := range s.steps {
		if sel := &s.steps[i]; !sel.Incomplete && s.reached(sel.After) {
			s.steps = s.steps[:i+1]
			break
		}
	}
	last := &s.steps[len(s.steps)-1]
	if s.over.Kind != Finished && len(last.After.Carried) == 0 {
		if s.tail == nil {
			d, err := newDraft(&s.division, last.After)
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
			s.adoptTail(last)
			s.finish(s.tail)
		}
	}
	last.Last = s.over.Kind == Finished
	if last.After.Done == (Done{}) {
		last.After.seekPoint(o)
	}
	s.state, s.tail = last.After, nil
	var dropped *Selection
	if last.Incomplete && s.spec.LastStep == millrace.DropLast {
		dropped, s.steps = last, s.steps[:len(s.steps)-1]
	}
	s.ready = append(s.ready, s.steps...)
	s.steps = nil
	if dropped != nil {
		return nil, s.drop(dropped)
	}
	return nil, nil
}

// drop leaves an incomplete last step out: the one before it becomes the last.
func (s *Selector) drop(sel *Selection) error {
	if len(s.ready) > 0 {
		s.ready[len(s.ready)-1].Last = true
		return nil
	}
	if sel.Step == 0 {
		return millrace.Errorf(millrace.ErrInvalid, "plan: the sources hold %d of a step's %d sequences and last_step is drop, so nothing is left to deliver; say pad",
			sel.NumBins, sel.GlobalBatch)
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
func (s *Selector) adoptTail(last *Selection) {
	if stop, ok := s.spec.stoppedBy(&s.tail.walk.state); ok {
		last.After.Sources[stop].Finished = true
		return
	}
	last.After = s.tail.walk.after(0, 0, nil)
	last.reject(s.tail.passed)
}
