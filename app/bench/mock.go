package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"millrace"
	"millrace/app/dryrun"
	"millrace/app/setup"
	"millrace/constructors"
	"millrace/internal/activity"
	"millrace/internal/seal"
	"millrace/proto"
	"millrace/sidecar"
)

// Mock is a run that serves the first step of a mixture again and again, with increasing numbers. It costs nothing but
// the building of batches, so that the difference between it and a real run is the loader's. It implements
// sidecar.Upstream and sidecar.Fetcher.
type Mock struct {
	begin  sidecar.Begin // without a position
	ranks  int
	plan   *millrace.Plan
	shape  millrace.Shape
	names  []sidecar.SourceNames
	tokens map[millrace.Slot][]constructors.Tokens
	size   int64 // bytes of tokens
	notice string

	mu      sync.Mutex
	joined  map[millrace.Rank]millrace.Step // the starts of the ranks that wait
	all     chan struct{}                   // closed when all ranks have joined
	from    millrace.Step
	attempt millrace.Attempt
	over    bool                            // no further step begins
	next    millrace.Step                   // no plan of it or of a later step was given out
	here    int                             // ranks that have joined and not left
	gone    chan struct{}                   // closed when every rank has joined and left
	done    map[millrace.Rank]millrace.Step // first step that the rank has not consumed
}

var (
	_ sidecar.Upstream = (*Mock)(nil)
	_ sidecar.Fetcher  = (*Mock)(nil)
)

// NewMock plans the first step of a walk for a number of ranks and reads its tokens.
func NewMock(ctx context.Context, o *dryrun.Opened, walk *dryrun.Walk, ranks int) (*Mock, error) {
	step, err := walk.Next(ctx)
	if err != nil {
		return nil, err
	}
	if step == nil {
		return nil, fmt.Errorf("make a mock run: the mixture has no step: it ends before one is full")
	}
	topology, err := o.Config.Topology(ranks)
	if err != nil {
		return nil, err
	}
	shapes := o.Config.Shapes()
	m := &Mock{
		ranks: ranks, plan: step.Plan, shape: shapes[0], tokens: map[millrace.Slot][]constructors.Tokens{},
		notice: "these batches are a mock: every step repeats step 0 of the mixture, for measurements alone",
		joined: map[millrace.Rank]millrace.Step{}, all: make(chan struct{}), gone: make(chan struct{}),
		done: map[millrace.Rank]millrace.Step{},
		begin: sidecar.Begin{Term: 1, Topology: topology, Broadcast: setup.Broadcast(o.Config), Shapes: shapes,
			PadMultiple: o.Config.PadMultiple},
	}
	for _, manifest := range o.Manifests() {
		names := sidecar.SourceNames{Name: manifest.Source}
		for _, shard := range manifest.Shards {
			names.Shards = append(names.Shards, shard.Name)
		}
		m.names = append(m.names, names)
	}
	return m, m.read(ctx, walk)
}

// read reads the tokens of the step.
func (m *Mock) read(ctx context.Context, walk *dryrun.Walk) error {
	for rank := range m.ranks {
		part := millrace.Rank(m.begin.Topology.Coordinates(millrace.Rank(rank)).DP)
		for microbatch := range m.plan.Microbatches {
			slot := millrace.Slot{Rank: part, Microbatch: microbatch}
			if m.tokens[slot] != nil {
				continue
			}
			b, err := walk.Build(ctx, millrace.Rank(rank), microbatch)
			if err != nil {
				return err
			}
			m.tokens[slot] = constructors.AllWide(b.Tokens)
			for _, ids := range b.Tokens {
				m.size += 4 * int64(len(ids))
			}
		}
	}
	return nil
}

// StepTokens returns the document tokens of a step.
func (m *Mock) StepTokens() (n uint64) {
	for i := range m.plan.Assignments {
		n += uint64(m.plan.Assignments[i].Length)
	}
	return n
}

// End ends the run after the steps whose plans were given out, at once if no trainer is here.
func (m *Mock) End() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	if m.here == 0 {
		m.close()
	}
}

// close signals that all trainers have left. The caller holds the lock.
func (m *Mock) close() {
	select {
	case <-m.gone:
	default:
		close(m.gone)
	}
}

// Gone returns a channel that is closed when every rank has joined and left, or when the run ended without trainers.
func (m *Mock) Gone() <-chan struct{} { return m.gone }

// Consumed returns the number of steps that every rank has consumed.
func (m *Mock) Consumed() millrace.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	low := m.done[0]
	for rank := range m.ranks {
		low = min(low, m.done[millrace.Rank(rank)])
	}
	return low
}

// Join implements sidecar.Upstream. A state's step number is the start; without a state it is step 0.
func (m *Mock) Join(ctx context.Context, rank millrace.Rank, start sidecar.Start) (sidecar.Begin, error) {
	at := start.Step
	if start.Kind == millrace.StartState {
		var state struct {
			Step millrace.Step `json:"step"`
		}
		if err := json.Unmarshal(start.State, &state); err != nil {
			return sidecar.Begin{}, &sidecar.StartError{Reason: "read the state: " + err.Error()}
		}
		at = state.Step
	}
	m.mu.Lock()
	m.here++
	if start.Kind == millrace.StartContinue {
		defer m.mu.Unlock()
		return m.beginAt(at, start.Microbatch, start.Attempt), nil
	}
	m.joined[rank] = at
	all := m.all
	if len(m.joined) == m.ranks {
		m.attempt++
		m.from, m.next = at, at
		m.joined, m.all = map[millrace.Rank]millrace.Step{}, make(chan struct{})
		close(all)
	}
	m.mu.Unlock()
	select {
	case <-all:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.beginAt(m.from, 0, m.attempt), nil
	case <-ctx.Done():
		return sidecar.Begin{}, ctx.Err()
	}
}

func (m *Mock) beginAt(step millrace.Step, microbatch uint32, attempt millrace.Attempt) sidecar.Begin {
	b := m.begin
	b.Step, b.Microbatch, b.Attempt, b.State = step, microbatch, attempt, state(step)
	return b
}

// state marks a state as a mock's. A real run refuses it.
func state(step millrace.Step) []byte { return fmt.Appendf(nil, `{"mock":true,"step":%d}`, step) }

// Plan implements sidecar.Upstream.
func (m *Mock) Plan(_ context.Context, attempt millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over && step >= m.next {
		return nil, io.EOF
	}
	m.next = max(m.next, step+1)
	plan := *m.plan
	plan.Attempt, plan.Step, plan.Term, plan.Last = attempt, step, 1, false
	plan.Leaves, plan.Placement = seal.Placement(&plan, m.shape)
	return &sidecar.StepPlan{Plan: &plan, State: state(step + 1), Sources: m.names}, nil
}

// Commit implements sidecar.Upstream.
func (m *Mock) Commit(_ context.Context, rank millrace.Rank, _ millrace.Attempt, step millrace.Step) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[rank] = max(m.done[rank], step+1)
	return nil
}

// CheckpointSaved implements sidecar.Upstream.
func (m *Mock) CheckpointSaved(context.Context, millrace.Rank, millrace.Attempt, millrace.Step) error {
	return nil
}

// Reported implements sidecar.Upstream.
func (m *Mock) Reported(millrace.Rank, sidecar.Report) {}

// Left implements sidecar.Upstream.
func (m *Mock) Left(rank millrace.Rank) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.joined, rank)
	if m.here--; m.here == 0 && m.attempt > 0 && len(m.joined) == 0 {
		m.close()
	}
}

// Waiting implements sidecar.Upstream.
func (m *Mock) Waiting() activity.Cause { return activity.Cause{} }

// Delivery implements sidecar.Upstream. A mock run has no figures.
func (m *Mock) Delivery() *proto.Delivery { return nil }

// Alerts implements sidecar.Upstream. The one alert says that the trainer's batches are a mock.
func (m *Mock) Alerts(ctx context.Context, after uint64) ([]sidecar.Alert, uint64, error) {
	if after == 0 {
		return []sidecar.Alert{{Kind: "mock", Text: m.notice, Since: time.Now().UnixMilli()}}, 1, nil
	}
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

// Fetch implements sidecar.Fetcher.
func (m *Mock) Fetch(context.Context, *millrace.Plan, []millrace.Rank) (sidecar.Payload, error) {
	return payload{m}, nil
}

type payload struct{ m *Mock }

func (p payload) Tokens(rank millrace.Rank, microbatch uint32) ([]constructors.Tokens, error) {
	return p.m.tokens[millrace.Slot{Rank: rank, Microbatch: microbatch}], nil
}

func (payload) Masked(millrace.Rank, uint32) []bool { return nil }

// Fields implements sidecar.Payload.
func (payload) Fields(millrace.Rank, uint32) []string { return nil }

func (p payload) Bytes() int64 { return p.m.size }

func (payload) Release() {}
