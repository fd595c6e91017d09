package sidecar

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"millrace"
	"millrace/constructors"
	"millrace/internal/seal"
)

// steps is one attempt's steps as all ranks of the host share them: each plan and its tokens are fetched once, ahead of need, and
// let go when the last rank has passed.
type steps struct {
	upstream Upstream
	fetcher  Fetcher
	ranks    []millrace.Rank // data-parallel, of which the host needs the samples
	attempt  millrace.Attempt
	shapes   *constructors.Set
	room     int64         // bytes of the largest frame
	ahead    millrace.Step // how many steps are fetched before they are needed

	ctx    context.Context
	cancel context.CancelFunc
	loads  sync.WaitGroup

	mu      sync.Mutex
	entries map[millrace.Step]*entry
	places  map[millrace.Rank]millrace.Step // where each attached rank stands
}

// entry is one step, or the reason why there is none.
type entry struct {
	step     millrace.Step
	ready    chan struct{} // closed when the fields below are set
	plan     *StepPlan
	collator *constructors.Collator // of its microbatches
	payload  Payload
	loss     uint64 // labels that take part in the step's loss
	err      error
	users    int // ranks that build from it, and its load; guarded by steps.mu
}

// spread is how many steps that one rank has passed are kept for slower ones; a rank further behind fetches again.
const spread = 16

func newSteps(ctx context.Context, up Upstream, f Fetcher, ranks []millrace.Rank, b Begin, ahead int) *steps {
	ctx, cancel := context.WithCancel(ctx)
	shapes := constructors.NewSet(b.Shapes, b.PadMultiple)
	return &steps{
		upstream: up, fetcher: f, ranks: b.fed(ranks), attempt: b.Attempt, shapes: shapes, room: shapes.MaxBytes(),
		ahead: millrace.Step(ahead), ctx: ctx, cancel: cancel,
		entries: map[millrace.Step]*entry{}, places: map[millrace.Rank]millrace.Step{},
	}
}

// take returns a step for the rank, waiting until it is here; give returns it. Taking a step says that the rank has passed those
// before it, and starts fetching those after it.
func (s *steps) take(ctx context.Context, rank millrace.Rank, step millrace.Step) (*entry, error) {
	s.mu.Lock()
	s.places[rank] = step
	e := s.need(step)
	e.users++
	for next := step + 1; next <= step+s.ahead; next++ {
		s.need(next)
	}
	drop := s.passed()
	s.mu.Unlock()
	letGo(drop)
	select {
	case <-e.ready:
	case <-ctx.Done():
		s.give(e)
		return nil, ctx.Err()
	}
	if e.err != nil {
		s.give(e)
		return nil, e.err
	}
	return e, nil
}

func (s *steps) give(e *entry) {
	s.mu.Lock()
	e.users--
	drop := s.passed()
	s.mu.Unlock()
	letGo(drop)
}

// leave forgets a rank; with the last one the attempt is closed. It reports whether that was so.
func (s *steps) leave(rank millrace.Rank) bool {
	s.mu.Lock()
	delete(s.places, rank)
	left := len(s.places)
	s.mu.Unlock()
	return left == 0
}

// close stops all fetching and lets everything go. Nobody may hold an entry.
func (s *steps) close() {
	s.cancel()
	s.loads.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for step, e := range s.entries {
		delete(s.entries, step)
		letGo([]*entry{e})
	}
}

// need returns the entry of a step, starting its load where there is none. The caller holds mu.
func (s *steps) need(step millrace.Step) *entry {
	if e := s.entries[step]; e != nil {
		return e
	}
	e := &entry{step: step, ready: make(chan struct{}), users: 1}
	s.entries[step] = e
	s.loads.Add(1)
	go s.load(e) // close waits for loads
	return e
}

func (s *steps) load(e *entry) {
	defer s.loads.Done()
	if e.plan, e.collator, e.payload, e.err = s.fetch(e.step); e.err == nil {
		e.loss = constructors.StepLossTokens(e.plan.Plan)
	}
	close(e.ready)
	s.give(e)
}

func (s *steps) fetch(step millrace.Step) (*StepPlan, *constructors.Collator, Payload, error) {
	plan, err := s.upstream.Plan(s.ctx, s.attempt, step)
	if err != nil {
		return nil, nil, nil, err
	}
	if plan.Attempt != s.attempt || plan.Step != step {
		return nil, nil, nil, millrace.Errorf(millrace.ErrMismatch, "plan of step %s of attempt %d came for step %s of attempt %d", plan.Step, plan.Attempt, step, s.attempt)
	}
	collator, err := s.shapes.Of(plan.Plan)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := seal.VerifyRoot(plan.Plan, collator.Shape()); err != nil {
		return nil, nil, nil, err
	}
	payload, err := s.fetcher.Fetch(s.ctx, plan.Plan, s.ranks)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("fetch the samples of step %s: %w", step, err)
	}
	return plan, collator, payload, nil
}

// passed takes out the entries that nobody will ask for again, and, where ranks stand far apart, the oldest that nobody asks for
// now. The caller holds mu, and lets them go after giving it back.
func (s *steps) passed() []*entry {
	var out []*entry
	for step, e := range s.entries {
		if e.users == 0 && s.unwanted(step) {
			delete(s.entries, step)
			out = append(out, e)
		}
	}
	return out
}

func (s *steps) unwanted(step millrace.Step) bool {
	for _, at := range s.places {
		if step >= at && step <= at+max(s.ahead, spread) {
			return false
		}
	}
	return true
}

func letGo(entries []*entry) {
	for _, e := range entries {
		if e.payload != nil {
			e.payload.Release()
		}
	}
}

// reason returns the error that a trainer should read: that of the run or of the start, without what wraps it.
func reason(err error) error {
	var run *RunError
	var start *StartError
	if errors.As(err, &run) {
		return run
	}
	if errors.As(err, &start) {
		return start
	}
	return err
}

// enter says where a rank begins, so that nothing it needs is let go.
func (s *steps) enter(rank millrace.Rank, step millrace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[rank] = step
}

// sharing is a rank's part in its attempt's steps.
type sharing struct {
	server *Server
	steps  *steps
	rank   millrace.Rank
}

// share returns the attempt's steps, which all ranks of the host have in common.
func (s *Server) share(rank millrace.Rank, b Begin) sharing {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.attempts[b.Attempt]
	if st == nil {
		st = newSteps(s.ctx, s.config.Upstream, s.config.Fetcher, s.config.Ranks, b, s.config.Ahead)
		s.attempts[b.Attempt] = st
	}
	st.enter(rank, b.Step)
	return sharing{s, st, rank}
}

func (h sharing) leave() {
	if h.steps == nil {
		return
	}
	h.server.mu.Lock()
	last := h.steps.leave(h.rank)
	if last {
		delete(h.server.attempts, h.steps.attempt)
	}
	h.server.mu.Unlock()
	if last {
		h.steps.close()
	}
}

func (s *Server) closeAttempts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.attempts {
		st.close()
	}
}
