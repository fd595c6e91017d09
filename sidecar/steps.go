package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"millrace"
	"millrace/constructors"
	"millrace/internal/seal"
	"millrace/sidecar/gauge"
	"millrace/sidecar/ring"
)

// steps holds one attempt's steps for all ranks of the host. It fetches each plan and its tokens once, ahead of need,
// and releases them when the last rank has passed the step.
type steps struct {
	upstream Upstream
	fetcher  Fetcher
	ranks    []millrace.Rank // data-parallel ranks whose samples the host needs
	marked   bool            // some tokens may be left out of the loss
	attempt  millrace.Attempt
	shapes   *constructors.Set
	room     int64                         // bytes of the largest frame
	ahead    millrace.Step                 // steps that are fetched before they are needed
	reserve  int64                         // bytes of tokens; within them, further steps are fetched
	groups   map[millrace.Rank]*ring.Group // of ranks that need the same bytes; immutable
	gauge    *gauge.Ranks

	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	loads  sync.WaitGroup

	mu      sync.Mutex
	entries map[millrace.Step]*entry
	places  map[millrace.Rank]millrace.Step // the current step of each attached rank
}

// entry is one step, or the error of its fetch.
type entry struct {
	step     millrace.Step
	ready    chan struct{} // closed when the fields below are set
	plan     *StepPlan
	collator *constructors.Collator // of its microbatches
	payload  Payload
	bytes    int64  // of the payload
	loss     uint64 // labels that take part in the step's loss, or unknownLoss
	err      error
	users    int // the ranks that build from it, and 1 during its load; guarded by steps.mu
}

// spread is the number of steps that are kept for slower ranks after one rank has passed them. A rank further behind
// fetches again.
const spread = 16

// mostAhead is the largest number of steps that are fetched ahead within the reserve. Each step has an arena, and so a
// descriptor, for each loader that has some of its tokens.
const mostAhead = 8

func newSteps(ctx context.Context, c Config, b Begin) *steps {
	ctx, cancel := context.WithCancel(ctx)
	shapes := constructors.NewSet(b.Shapes, b.PadMultiple)
	return &steps{
		upstream: c.Upstream, fetcher: c.Fetcher, ranks: b.Fed(c.Ranks), marked: b.Untrained, attempt: b.Attempt,
		shapes: shapes, room: shapes.MaxBytes(), ahead: millrace.Step(c.Ahead), reserve: c.Reserve,
		groups: newGroups(c, b),
		gauge:  c.Gauge, log: c.Log, ctx: ctx, cancel: cancel,
		entries: map[millrace.Step]*entry{}, places: map[millrace.Rank]millrace.Step{},
	}
}

// newGroups returns a group for every two or more ranks of the host that need the same bytes along the shared axes.
func newGroups(c Config, b Begin) map[millrace.Rank]*ring.Group {
	sizes := map[millrace.Rank]int64{}
	for _, rank := range c.Ranks {
		if b.share(rank).whole {
			sizes[c.Shared.group(b.Topology, rank)]++
		}
	}
	extra := uint32(0)
	if c.Shared.PP {
		extra = uint32(b.Topology.PP - 1) // microbatches that the first stage takes before the last one takes its first
	}
	groups := map[millrace.Rank]*ring.Group{}
	for number, size := range sizes {
		if size > 1 {
			groups[number] = ring.NewGroup(c.Frames, extra, size*c.RingSize)
		}
	}
	return groups
}

// take returns a step for the rank and blocks until the step is fetched. The caller ends the use with give. take also
// notes that the rank has passed all earlier steps, and starts to fetch the steps after it.
func (s *steps) take(ctx context.Context, rank millrace.Rank, step millrace.Step) (*entry, error) {
	s.mu.Lock()
	s.places[rank] = step
	e := s.need(step)
	e.users++
	for next := step + 1; next <= step+s.ahead; next++ {
		s.need(next)
	}
	drop := s.takePassed()
	s.reach()
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

// give ends the use of a step.
func (s *steps) give(e *entry) {
	s.mu.Lock()
	e.users--
	drop := s.takePassed()
	s.reach()
	s.mu.Unlock()
	letGo(drop)
}

// reach starts the load of the next step of the reserve, if all other steps are here and the reserve has room. So it
// never delays a step that is needed sooner. While a loader is replaced, trainers consume the reserve. The caller holds
// mu.
func (s *steps) reach() {
	if s.ctx.Err() != nil || len(s.places) == 0 {
		return
	}
	var first millrace.Step
	for _, at := range s.places {
		first = max(first, at)
	}
	next := first + 1
	for s.entries[next] != nil {
		next++
	}
	if next <= first+s.ahead || next > first+mostAhead {
		return
	}
	var held, largest int64
	for _, e := range s.entries {
		if !e.isHere() || e.plan.Last {
			return
		}
		held, largest = held+e.bytes, max(largest, e.bytes)
	}
	if held+largest <= s.reserve {
		s.need(next)
	}
}

// isHere reports whether the step has been fetched without an error.
func (e *entry) isHere() bool {
	select {
	case <-e.ready:
		return e.err == nil
	default:
		return false
	}
}

// forget detaches a rank. It reports whether the rank was the last one.
func (s *steps) forget(rank millrace.Rank) bool {
	s.mu.Lock()
	delete(s.places, rank)
	left := len(s.places)
	s.mu.Unlock()
	return left == 0
}

// close stops all fetching and releases everything. No caller may still hold an entry.
func (s *steps) close() {
	s.cancel()
	s.loads.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for step, e := range s.entries {
		delete(s.entries, step)
		letGo([]*entry{e})
	}
	for _, g := range s.groups {
		if err := g.Close(); err != nil {
			s.log.Error("give back the shared memory of a group of ranks", "error", err)
		}
	}
}

// need returns the entry of a step and starts its load if there is none. The caller holds mu.
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
		e.bytes = e.payload.Bytes()
		e.loss, e.err = s.lossTokens(e.plan.Plan, e.payload)
	}
	close(e.ready)
	s.tellReady()
	s.give(e)
}

// unknownLoss is the number of labels of a step if some tokens are left out of its loss, an earlier release planned it
// without counting them, and only other hosts have some of the step's tokens.
const unknownLoss = ^uint64(0)

// lossTokens returns the labels that take part in the loss of a step over all data-parallel ranks of the run.
func (s *steps) lossTokens(plan *millrace.Plan, payload Payload) (uint64, error) {
	labels := constructors.StepLossTokens(plan)
	if plan.Held != nil {
		labels = plan.Labels
	}
	switch isWhole := len(s.ranks) == int(plan.Ranks); {
	case plan.Counted || !s.marked:
		return labels, nil
	case !isWhole:
		return unknownLoss, nil
	}
	for _, rank := range s.ranks {
		for m := range plan.Microbatches {
			tokens, err := payload.Tokens(rank, m)
			if err != nil {
				return 0, err
			}
			labels -= constructors.UntrainedLabels(plan.Part(rank, m), tokens, payload.Masked(rank, m))
		}
	}
	return labels, nil
}

// content returns the content of a microbatch, with pairs apart.
func (e *entry) content(rank millrace.Rank, m uint32) (in constructors.Content, err error) {
	if in.Tokens, err = e.payload.Tokens(rank, m); err != nil {
		return in, err
	}
	in.Part, in.Masked, in.Fields = e.plan.Part(rank, m), e.payload.Masked(rank, m), e.payload.Fields(rank, m)
	return in.Apart()
}

// tellReady reports to the gauge how far the steps of each rank are here.
func (s *steps) tellReady() {
	if s.gauge == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, at := range s.places {
		for s.entries[at] != nil && s.entries[at].isHere() {
			at++
		}
		s.gauge.Ready(rank, at)
	}
}

func (s *steps) fetch(step millrace.Step) (*StepPlan, *constructors.Collator, Payload, error) {
	plan, err := s.upstream.Plan(s.ctx, s.attempt, step)
	if err != nil {
		return nil, nil, nil, err
	}
	if plan.Attempt != s.attempt || plan.Step != step {
		return nil, nil, nil, millrace.Errorf(millrace.ErrMismatch,
			"plan of step %s of attempt %d came for step %s of attempt %d", plan.Step, plan.Attempt, step, s.attempt)
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

// takePassed removes and returns the entries without users that no rank is about to take. If ranks are far apart, a
// slow rank's later steps are among them. The caller holds mu, and releases the entries after it has unlocked mu.
func (s *steps) takePassed() []*entry {
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

// reason returns the error for the trainer: the *RunError or *StartError inside err, else err.
func reason(err error) error {
	var failure *RunError
	var start *StartError
	if errors.As(err, &failure) {
		return failure
	}
	if errors.As(err, &start) {
		return start
	}
	return err
}

// enter attaches a rank at its first step. From then on the steps that it needs are kept.
func (s *steps) enter(rank millrace.Rank, step millrace.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places[rank] = step
}

// attempts holds the steps of each attempt that has connections.
type attempts struct {
	ctx    context.Context // ends with the server
	config Config

	mu    sync.Mutex
	steps map[millrace.Attempt]*steps
}

func newAttempts(ctx context.Context, c Config) *attempts {
	return &attempts{ctx: ctx, config: c, steps: map[millrace.Attempt]*steps{}}
}

// sharing is one rank's use of its attempt's steps.
type sharing struct {
	of     *attempts
	steps  *steps
	rank   millrace.Rank
	member *ring.Member // of the group of its rank; nil: the rank has memory of its own alone
}

// share returns a rank's use of its attempt's steps, which all ranks of the host share. readOnly: its client can map
// memory that it can only read. The caller ends the use with end.
func (a *attempts) share(rank millrace.Rank, b Begin, readOnly bool) sharing {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.steps[b.Attempt]
	if s == nil {
		s = newSteps(a.ctx, a.config, b)
		a.steps[b.Attempt] = s
	}
	s.enter(rank, b.Step)
	out := sharing{of: a, steps: s, rank: rank}
	if g := s.groups[a.config.Shared.group(b.Topology, rank)]; g != nil && readOnly && b.share(rank).whole {
		out.member = g.Join(ring.At{Step: uint64(b.Step), Microbatch: b.Microbatch})
	}
	return out
}

// end ends the use. The last use of an attempt closes its steps.
func (s sharing) end() {
	if s.steps == nil {
		return // the rank never began
	}
	if s.member != nil {
		if err := s.member.Leave(); err != nil {
			s.steps.log.Error("give back the frames of a rank", "rank", s.rank, "error", err)
		}
	}
	s.of.mu.Lock()
	isLast := s.steps.forget(s.rank)
	if isLast {
		delete(s.of.steps, s.steps.attempt)
	}
	s.of.mu.Unlock()
	if isLast {
		s.steps.close()
	}
}

// close closes the steps of all attempts.
func (a *attempts) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.steps {
		s.close()
	}
}
