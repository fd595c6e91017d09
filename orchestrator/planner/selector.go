package planner

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/orchestrator/planner/pack"
	"millrace/orchestrator/planner/progress"
)

// Selector cuts the sources' streams into steps. It never sees the topology. One owner; not for concurrent use.
type Selector struct {
	spec  *Spec
	names []string
	state progress.State     // before the next window; after a restore, maybe inside a window
	waits []millrace.Segment // the segments of the first entries of state.Carried, as far as they are known
	cut   *pack.Cutter

	division division
	segments []millrace.Segment // memory of the last draft
	units    []uint32

	draft *draft      // the window being drawn, or nil
	steps []Selection // of a packed window, until settle has decided whether the run ends with it
	tail  *draft      // finds out whether anything follows these steps
	over  Outcome     // the end of the run; Kind is Finished once it is decided

	skipping *skipping     // a skip under way, or nil
	skipped  millrace.Step // the step whose skip is over, plus one

	// to be handed out; with last_step drop the newest waits until it is known whether a full step follows
	ready []Selection
	err   error // the stream cannot continue
}

// NewSelector returns a Selector that starts from a state.
func NewSelector(spec *Spec, st progress.State) (*Selector, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if err := st.Validate(len(spec.Sources)); err != nil {
		return nil, err
	}
	spec = spec.Under(&st)
	return &Selector{
		spec:     spec,
		names:    spec.names(),
		state:    st.Clone(),
		cut:      new(pack.Cutter),
		division: division{spec: spec},
	}, nil
}

// Advance returns the next step's selection and Sealed, or Waiting if metadata is missing, or Finished. The selection
// depends on the metadata only: waiting has no effect on it. The last step has Last set, so Advance checks whether
// anything follows a step. With last_step drop, it draws one step ahead of the step that it returns. Errors are final:
// the stream cannot continue.
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
	decided := s.err != nil || s.over.Kind == Finished
	if s.spec.LastStep == millrace.DropLast && len(s.ready) == 1 && !decided {
		return sel, false
	}
	sel = s.ready[0]
	s.ready = slices.Delete(s.ready, 0, 1)
	return sel, true
}

// work continues the window under way, until its steps are ready, the run is over, or metadata is missing.
func (s *Selector) work(o Offers) (*missing, error) {
	if s.steps == nil {
		if s.reachesStop(s.state) {
			return nil, nil
		}
		if wait, err := s.skip(o); wait != nil || err != nil {
			return wait, err
		}
		wait, err := s.drawWindow(o)
		if wait != nil || err != nil || s.steps == nil {
			return wait, err
		}
	}
	return s.settle(o)
}

// reachesStop ends the run if the state has the steps or tokens of `stop`.
func (s *Selector) reachesStop(st progress.State) bool {
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

// drawWindow draws and packs a window into s.steps, or ends the run because nothing is left to draw.
func (s *Selector) drawWindow(o Offers) (*missing, error) {
	if s.draft == nil {
		d, err := newDraft(&s.division, s.state.Begun())
		if err != nil {
			return nil, err
		}
		// Segments are copied into the steps when a window is cut, so the next window can mostly use the same memory.
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
	if w.isWhole() && d.end == endFailed {
		return nil, &ExhaustedError{Source: s.names[d.failed], Step: s.state.Step}
	}
	if w.n == 0 {
		if s.state.Tokens == 0 {
			return nil, &EmptyError{Step: s.state.Step}
		}
		s.finish(d)
		return nil, nil
	}
	steps, err := w.seal()
	if err != nil {
		return nil, err
	}
	if steps, err = s.withoutDone(steps); err != nil {
		return nil, err
	}
	s.draft, s.steps, s.waits = nil, steps, w.waits
	s.segments, s.units = d.segments, d.units
	if w.given {
		s.segments = make([]millrace.Segment, 0, cap(d.segments))
	}
	return nil, nil
}

// withoutDone leaves out the steps of a window that were over when the state was saved. Their tokens are compared: if
// source files changed, the window comes out differently.
func (s *Selector) withoutDone(steps []Selection) ([]Selection, error) {
	done := s.state.Done
	if done == (progress.Done{}) {
		return steps, nil
	}
	if int(done.Steps) >= len(steps) || steps[done.Steps-1].After.Done != done {
		return nil, millrace.Errorf(millrace.ErrMismatch,
			"plan step %s: the window from step %s on was drawn again, and its first %d steps hold other tokens "+
				"than before: did source files change? Restore them, or go on from a state outside the window",
			s.state.Step, s.state.Begun().Step, done.Steps)
	}
	return steps[done.Steps:], nil
}

// settle decides whether the run ends with the window, or inside it, and makes its steps ready.
func (s *Selector) settle(o Offers) (*missing, error) {
	for i := range s.steps {
		if sel := &s.steps[i]; !sel.Incomplete && s.reachesStop(sel.After) {
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
		more, wait, err := s.tail.canDraw(o)
		if wait != nil {
			return wait, nil
		}
		if !more && err == nil {
			s.adoptTail(last)
			s.finish(s.tail)
		}
	}
	last.Last = s.over.Kind == Finished
	if last.After.Done == (progress.Done{}) {
		updateSeekPoints(&last.After, o)
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

// drop leaves out an incomplete last step. The step before it becomes the last.
func (s *Selector) drop(sel *Selection) error {
	if len(s.ready) > 0 {
		s.ready[len(s.ready)-1].Last = true
		return nil
	}
	if sel.Step == 0 {
		return millrace.Errorf(millrace.ErrInvalid,
			"plan: the sources hold %d of a step's %d sequences and last_step is drop, so nothing is left to deliver; "+
				"set last_step: pad",
			sel.NumBins, sel.GlobalBatch)
	}
	return nil
}

// finish ends the run after a draft that could draw nothing more.
func (s *Selector) finish(d *draft) {
	s.over = Outcome{Kind: Finished, Reason: SourcesThrough}
	if stop, ok := s.spec.stoppedBy(&d.replay.state); ok {
		s.over.Reason, s.over.Source = SourceStopped, stop
	}
	for i, src := range d.replay.state.Sources {
		if !src.Finished {
			s.over.Unread = append(s.over.Unread, s.names[i])
		}
	}
}

// adoptTail adds the documents that the tail consumed to the last step. After a stop, it adds only the stop, because
// the tail has not resolved the other sources.
func (s *Selector) adoptTail(last *Selection) {
	if stop, ok := s.spec.stoppedBy(&s.tail.replay.state); ok {
		last.After.Sources[stop].Finished = true
		return
	}
	last.After = s.tail.replay.stateAfter(0, 0, nil)
	last.reject(s.tail.passed)
}

// skipping is a skip under way. Its steps are drawn like any others, by a selector of their own.
type skipping struct {
	skip  Skip
	draws *Selector
	rest  millrace.Step
	after progress.State
}

// skip moves the state over the skip that begins at its step, if there is one that is not over.
func (s *Selector) skip(o Offers) (*missing, error) {
	if s.skipping == nil {
		at := slices.IndexFunc(s.spec.Skips, func(k Skip) bool { return k.From == s.state.Step })
		if at < 0 || s.skipped == s.state.Step+1 {
			return nil, nil
		}
		skip := s.spec.Skips[at]
		spec := *s.spec
		spec.Skips, spec.StopSteps, spec.StopTokens, spec.LastStep, spec.Window = nil, 0, 0, millrace.PadLast, 1
		draws, err := NewSelector(&spec, s.state)
		if err != nil {
			return nil, err
		}
		s.skipping = &skipping{skip: skip, draws: draws, rest: skip.To - skip.From, after: s.state}
	}
	p := s.skipping
	for p.rest > 0 {
		sel, out, err := p.draws.Advance(o)
		switch {
		case err != nil:
			return nil, fmt.Errorf("pass over steps %s to %s: %w", p.skip.From, p.skip.To, err)
		case out.Kind == Waiting:
			return &missing{out.Source, out.Ordinal}, nil
		case out.Kind == Finished:
			p.rest = 0
		default:
			p.rest--
			p.after = sel.After
		}
	}
	s.state, s.skipping, s.skipped = s.spec.skipTo(s.state, p.after), nil, s.state.Step+1
	if s.state.IsPooled() {
		s.waits = p.draws.waits
	}
	return nil, nil
}

// skipTo returns the state with its sources at the documents after the skipped steps. The skip places no tokens, so the
// run's counters and deficits stay. The segments that wait after the skip are those that no skipped step holds; the
// sources' counters of drawn tokens follow them. In runs of earlier planners, the segments that waited before the skip
// still wait after it.
func (s *Spec) skipTo(before, after progress.State) progress.State {
	out := after.Clone()
	out.Step, out.Tokens = before.Step, before.Tokens
	if !before.IsPooled() {
		out.Carried = slices.Clone(before.Carried)
	}
	for i := range out.Sources {
		src, was := &out.Sources[i], &before.Sources[i]
		src.Tokens, src.Samples, src.Deficit, src.Counts = was.Tokens, was.Samples, was.Deficit, was.Counts
	}
	s.count(&out, before.Carried, -1)
	s.count(&out, out.Carried, 1)
	for i := range out.Sources {
		if src := &out.Sources[i]; src.SeekPoint.Ordinal > out.Floor(i) {
			src.SeekPoint = before.Sources[i].SeekPoint
		}
	}
	return out
}

// count adds the tokens and samples of waiting segments, times a sign, to the counters of their sources.
func (s *Spec) count(st *progress.State, waits []progress.Carried, sign int64) {
	for _, w := range waits {
		src := &st.Sources[w.Source]
		src.Tokens += uint64(sign * int64(w.Length))
		if s.Sources[w.Source].begins(w.Offset) {
			src.Samples += uint64(sign)
		}
	}
}
