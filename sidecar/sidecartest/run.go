// Package sidecartest has a synthetic run, for tests and measurements of the sidecar and its clients alone. It computes
// plans, tokens and starts as an orchestrator and loaders would give them.
package sidecartest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace"
	"millrace/constructors"
	"millrace/internal/activity"
	"millrace/internal/seal"
	"millrace/proto"
	"millrace/sidecar"
)

// Config describes the run.
type Config struct {
	Steps        int // 0: endless
	World        int // trainer ranks of all hosts
	Elsewhere    int // of them, the last ones, on other hosts: they join by themselves, and plans come as parts
	TP, CP, PP   int // ranks on each axis; 0: 1
	Broadcast    millrace.Broadcast
	Pad          int // multiple to which segments are padded; 0: 1
	Microbatches int // of each rank
	Rows, Length int // of a microbatch
	Longer       int // from this step on, rows are twice as long, with one row in each microbatch; 0: never
	Layout       millrace.Layout
	Dtype        millrace.TokenDtype
	StateBytes   int  // the state is padded to about this size
	History      bool // the run has been started before, so that a missing start is an error
	SameStep     bool // every step has the plan of step 0, so that planning takes no time
	FailAt       int  // the run fails when this step is planned; 0: never
	FailReason   string
	// from this step on every segment has one token, so that batches need larger frames; 0: never
	Crumbs    int
	PlanDelay time.Duration // the time that each plan takes
	Alert     string        // the text of an open alert; empty: there is none
	Untrained bool          // some tokens may be left out of the loss
}

// Run implements sidecar.Upstream and sidecar.Fetcher. It is safe for concurrent use.
type Run struct {
	config Config
	// For SameStep.
	plan0   *sidecar.StepPlan
	tokens0 map[millrace.Slot][]constructors.Tokens

	mu        sync.Mutex
	waiting   map[millrace.Rank]sidecar.Start
	joined    chan struct{} // closed when all have joined
	begin     sidecar.Begin
	refusal   error
	attempt   millrace.Attempt
	committed map[millrace.Rank]millrace.Step // first step not committed
	held      int                             // payloads fetched and not released
}

var (
	_ sidecar.Upstream = (*Run)(nil)
	_ sidecar.Fetcher  = (*Run)(nil)
)

// New returns a run that has not begun.
func New(c Config) *Run {
	if c.Layout == "" {
		c.Layout = millrace.Packed
	}
	if c.Dtype == "" {
		c.Dtype = millrace.Int64
	}
	c.TP, c.CP, c.PP, c.Pad = max(c.TP, 1), max(c.CP, 1), max(c.PP, 1), max(c.Pad, 1)
	r := &Run{
		config:    c,
		waiting:   map[millrace.Rank]sidecar.Start{},
		joined:    make(chan struct{}),
		committed: map[millrace.Rank]millrace.Step{},
	}
	if c.SameStep {
		r.plan0 = r.make(1, 0)
		ranks := make([]millrace.Rank, r.topology().DP())
		for i := range ranks {
			ranks[i] = millrace.Rank(i)
		}
		r.tokens0 = tokensOfAll(r.plan0.Plan, ranks)
	}
	return r
}

// Names returns the run's sources.
func Names() []sidecar.SourceNames {
	return []sidecar.SourceNames{
		{Name: "books", Shards: []string{"corpus.bin"}},
		{Name: "web", Shards: []string{"part-0.jsonl.zst", "part-1.jsonl.zst"}},
	}
}

// shapeOf returns the shape of a step's microbatches, and their number on each rank.
func (r *Run) shapeOf(step millrace.Step) (shape millrace.Shape, microbatches int) {
	shape, microbatches = r.Shape(), r.config.Microbatches
	if r.config.Longer > 0 && int(step) >= r.config.Longer {
		microbatches *= int(shape.MicroBatch)
		shape.MicroBatch, shape.SequenceLength = 1, 2*shape.SequenceLength
		shape.CapTokens = shape.SequenceLength
	}
	return shape, microbatches
}

// Shape returns the shape of the microbatches of the first step.
func (r *Run) Shape() millrace.Shape {
	return millrace.Shape{
		SequenceLength: uint32(
			r.config.Length,
		), MicroBatch: uint32(r.config.Rows), Layout: r.config.Layout, TokenDtype: r.config.Dtype,
		CapTokens: uint32(r.config.Rows * r.config.Length), CP: uint32(r.config.CP),
	}
}

func (r *Run) shapes() []millrace.Shape {
	first, _ := r.shapeOf(0)
	last, _ := r.shapeOf(millrace.Step(r.config.Longer))
	return []millrace.Shape{first, last}
}

func (r *Run) topology() millrace.Topology {
	return millrace.Topology{Ranks: r.config.World, TP: r.config.TP, CP: r.config.CP, PP: r.config.PP}
}

// Join blocks until all ranks have declared the same start. A rank that continues does not wait.
func (r *Run) Join(ctx context.Context, rank millrace.Rank, start sidecar.Start) (sidecar.Begin, error) {
	r.mu.Lock()
	if start.Kind == millrace.StartContinue {
		defer r.mu.Unlock()
		r.attempt = max(r.attempt, start.Attempt)
		r.committed[rank] = max(r.committed[rank], start.Step)
		return r.at(start.Step, start.Microbatch, r.state(start.Step)), nil
	}
	r.waiting[rank] = start
	joined := r.joined
	if len(r.waiting) == r.config.World-r.config.Elsewhere {
		r.resolve(start)
		close(joined)
		r.joined, r.waiting = make(chan struct{}), map[millrace.Rank]sidecar.Start{}
	}
	r.mu.Unlock()
	select {
	case <-joined:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.begin, r.refusal
	case <-ctx.Done():
		return sidecar.Begin{}, ctx.Err()
	}
}

func (r *Run) resolve(start sidecar.Start) {
	r.begin, r.refusal = sidecar.Begin{}, nil
	for rank, s := range r.waiting {
		if s.Kind != start.Kind || string(s.State) != string(start.State) {
			r.refusal = &sidecar.StartError{
				Reason: fmt.Sprintf("the ranks differ in where they start: rank %d says %q", rank, s.Kind),
			}
			return
		}
	}
	at, notice := savedState{}, ""
	switch start.Kind {
	case millrace.StartNone:
		if r.config.History {
			r.refusal = &sidecar.StartError{
				Reason: `this run has history: load a state, or say start="latest" or start="fresh"`,
			}
			return
		}
	case millrace.StartLatest:
		at.Step = r.watermark()
	case millrace.StartState:
		if err := json.Unmarshal(start.State, &at); err != nil {
			r.refusal = &sidecar.StartError{Reason: "the state is damaged: " + err.Error()}
			return
		}
		if at.Seed != seed && len(start.Override) == 0 {
			r.refusal = &sidecar.StartError{Reason: "the state is of another run: seed changed"}
			return
		}
		if at.Microbatch > 0 && at.Placement != r.make(1, at.Step).Placement.String() {
			notice = fmt.Sprintf("training goes back to the beginning of step %d, %d microbatches", at.Step,
				at.Microbatch)
			at.Microbatch = 0
		}
	}
	r.attempt++
	r.config.History = true
	state := start.State
	if start.Kind != millrace.StartState || notice != "" {
		state = r.state(at.Step)
	}
	r.begin = r.at(at.Step, at.Microbatch, state)
	r.begin.Notice = notice
}

func (r *Run) watermark() millrace.Step {
	low := millrace.Step(0)
	for rank := range r.config.World - r.config.Elsewhere {
		if c := r.committed[millrace.Rank(rank)]; rank == 0 || c < low {
			low = c
		}
	}
	return low
}

func (r *Run) at(step millrace.Step, microbatch uint32, state []byte) sidecar.Begin {
	return sidecar.Begin{
		Attempt: r.attempt, Term: 1, Step: step, Microbatch: microbatch, State: state,
		Topology: r.topology(), Broadcast: r.config.Broadcast,
		Shapes: r.shapes(), PadMultiple: uint32(r.config.Pad), Untrained: r.config.Untrained,
	}
}

const seed = 1234

type savedState struct {
	Version    int           `json:"version"`
	Seed       int           `json:"seed"`
	Step       millrace.Step `json:"step"`
	Attempt    int           `json:"attempt"`
	Big        uint64        `json:"big"` // does not fit a float64
	Microbatch uint32        `json:"microbatch,omitempty"`
	Placement  string        `json:"placement,omitempty"`
	Pad        string        `json:"pad,omitempty"`
}

// state returns the state before step. It has the ordinals that a plan needs, and the size of a real state.
func (r *Run) state(step millrace.Step) []byte {
	s := savedState{
		Version: 1,
		Seed:    seed,
		Step:    step,
		Attempt: 1,
		Big:     1<<63 + uint64(step),
		Pad:     strings.Repeat("x", max(0, r.config.StateBytes-96)),
	}
	b, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	return b
}

// Plan computes a step's plan, or the part of it for the ranks of this host.
func (r *Run) Plan(ctx context.Context, attempt millrace.Attempt, step millrace.Step) (*sidecar.StepPlan, error) {
	if d := r.config.PlanDelay; d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r.config.Steps > 0 && int(step) >= r.config.Steps {
		return nil, io.EOF
	}
	if r.config.FailAt > 0 && int(step) >= r.config.FailAt {
		return nil, &sidecar.RunError{Reason: r.config.FailReason}
	}
	if r.plan0 == nil {
		p := r.make(attempt, step)
		if r.config.Elsewhere > 0 {
			p.Plan = r.part(p.Plan)
		}
		return p, nil
	}
	p := *r.plan0
	plan := *p.Plan
	plan.Attempt, plan.Step = attempt, step
	p.Plan = &plan
	shape, _ := r.shapeOf(step)
	plan.Leaves, plan.Placement = seal.Placement(&plan, shape)
	return &p, nil
}

func (r *Run) make(attempt millrace.Attempt, step millrace.Step) *sidecar.StepPlan {
	c, dp := r.config, r.topology().DP()
	shape, microbatches := r.shapeOf(step)
	p := &millrace.Plan{
		Stream:         millrace.Train,
		Attempt:        attempt,
		Step:           step,
		Term:           1,
		Ranks:          uint32(dp),
		Microbatches:   uint32(microbatches),
		SequenceLength: shape.SequenceLength,
		MicroBatch:     shape.MicroBatch,
	}
	row := int(step) * dp * c.Microbatches * c.Rows
	for rank := range dp {
		for m := range microbatches {
			for i := range int(shape.MicroBatch) {
				p.Assignments = append(p.Assignments, r.row(step, rank, m, i, row, shape.SequenceLength)...)
				row++
			}
		}
	}
	segments := make([]millrace.Segment, len(p.Assignments))
	for i := range p.Assignments {
		segments[i] = p.Assignments[i].Segment
	}
	p.Content = seal.Content([]string{"books", "web"}, segments)
	p.Leaves, p.Placement = seal.Placement(p, shape)
	p.Last = c.Steps > 0 && int(step) == c.Steps-1
	return &sidecar.StepPlan{Plan: p, State: r.state(step + 1), Sources: Names()}
}

// part returns the part of a plan for the ranks of this host.
func (r *Run) part(whole *millrace.Plan) *millrace.Plan {
	out := *whole
	out.Labels, out.Assignments, out.Leaves = constructors.StepLossTokens(whole), nil, nil
	for rank := range millrace.Rank(r.config.World) {
		dp := millrace.Rank(r.topology().Coordinates(rank).DP)
		if int(rank) >= r.config.World-r.config.Elsewhere || slices.Contains(out.Held, dp) {
			continue
		}
		out.Held = append(out.Held, dp)
		for m := range whole.Microbatches {
			out.Assignments = append(out.Assignments, whole.Part(dp, m)...)
			out.Leaves = append(out.Leaves, whole.Leaves[uint32(dp)*whole.Microbatches+m])
		}
	}
	out.Proof = seal.NewTree(whole.Leaves).Prove(out.Held, whole.Microbatches)
	return &out
}

// row fills one row with two documents, or with segments of one token.
func (r *Run) row(step millrace.Step, rank, m, i, number int, length uint32) []millrace.Assignment {
	// The second document begins at a multiple of the padding.
	cut := uint32((int(length)/2 + number%3 + r.config.Pad - 1) / r.config.Pad * r.config.Pad)
	at := func(source uint32, ordinal int, offset, n, start uint32, more bool) millrace.Assignment {
		a := millrace.Assignment{
			Segment: millrace.Segment{
				Source: source, Ordinal: millrace.Ordinal(ordinal), Epoch: millrace.Epoch(number % 2),
				ID: millrace.SampleID{
					Shard:  source * uint32(number%2),
					Record: uint64(number),
				}, Offset: offset, Length: n, More: more,
			},
			Rank: millrace.Rank(rank), Microbatch: uint32(m), Row: uint32(i), Start: start,
		}
		if r.config.Layout == millrace.Varlen {
			a.Row, a.Start = 0, uint32(i)*length+start
		}
		return a
	}
	if r.config.Crumbs == 0 || int(step) < r.config.Crumbs {
		return []millrace.Assignment{at(0, number, 0, cut, 0, false), at(1, number, 0, length-cut, cut, number%2 == 0)}
	}
	out := make([]millrace.Assignment, 0, length)
	for t := range length {
		out = append(out, at(0, number, t, 1, t, t+1 < length))
	}
	return out
}

// Token returns token i of a document.
func Token(source uint32, ordinal millrace.Ordinal, i uint32) uint32 {
	return uint32((uint64(ordinal)*7919 + uint64(i) + 31*uint64(source)) % 50_000)
}

// Fetch computes the tokens of a step's parts.
func (r *Run) Fetch(_ context.Context, plan *millrace.Plan, ranks []millrace.Rank) (sidecar.Payload, error) {
	p := &payload{run: r, tokens: r.tokens0}
	if p.tokens == nil {
		p.tokens = tokensOfAll(plan, ranks)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held++
	return p, nil
}

func tokensOfAll(plan *millrace.Plan, ranks []millrace.Rank) map[millrace.Slot][]constructors.Tokens {
	out := map[millrace.Slot][]constructors.Tokens{}
	for _, rank := range ranks {
		for m := range plan.Microbatches {
			out[millrace.Slot{Rank: rank, Microbatch: m}] = tokensOf(plan.Part(rank, m))
		}
	}
	return out
}

func tokensOf(part []millrace.Assignment) []constructors.Tokens {
	out := make([]constructors.Tokens, len(part))
	for i := range part {
		a := &part[i]
		n := a.Length
		if a.More {
			n++
		}
		ids := make([]uint32, n)
		for t := range ids {
			ids[t] = Token(a.Source, a.Ordinal, a.Offset+uint32(t))
		}
		out[i] = constructors.Wide(ids)
	}
	return out
}

type payload struct {
	run    *Run
	tokens map[millrace.Slot][]constructors.Tokens
}

func (p *payload) Tokens(rank millrace.Rank, m uint32) ([]constructors.Tokens, error) {
	return p.tokens[millrace.Slot{Rank: rank, Microbatch: m}], nil
}

func (p *payload) Masked(millrace.Rank, uint32) []bool { return nil }

// Fields implements sidecar.Payload.
func (p *payload) Fields(millrace.Rank, uint32) []string { return nil }

func (p *payload) Bytes() (bytes int64) {
	for _, part := range p.tokens {
		for _, tokens := range part {
			bytes += 4 * int64(tokens.Len())
		}
	}
	return bytes
}

func (p *payload) Release() {
	p.run.mu.Lock()
	defer p.run.mu.Unlock()
	p.run.held--
}

// Commit notes the commit.
func (r *Run) Commit(_ context.Context, rank millrace.Rank, _ millrace.Attempt, step millrace.Step) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.committed[rank] = step + 1
	return nil
}

// Committed returns the first step that the rank has not committed.
func (r *Run) Committed(rank millrace.Rank) millrace.Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed[rank]
}

// Reported ignores reports.
func (r *Run) Reported(millrace.Rank, sidecar.Report) {}

// CheckpointSaved ignores checkpoints: the server's events have them.
func (r *Run) CheckpointSaved(context.Context, millrace.Rank, millrace.Attempt, millrace.Step) error {
	return nil
}

// Left forgets a rank's join.
func (r *Run) Left(rank millrace.Rank) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, rank)
}

// Waiting returns the number of ranks that have joined, as text.
func (r *Run) Waiting() activity.Cause {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.waiting); n > 0 {
		return activity.Cause{Kind: activity.Ranks, Text: fmt.Sprintf("%d of %d ranks are here", n, r.config.World)}
	}
	return activity.Cause{}
}

// Delivery returns nil: there is no orchestrator.
func (r *Run) Delivery() *proto.Delivery { return nil }

// Alerts returns the alert of the configuration, if it has one.
func (r *Run) Alerts(ctx context.Context, after uint64) ([]sidecar.Alert, uint64, error) {
	if r.config.Alert != "" && after == 0 {
		return []sidecar.Alert{{Kind: "unprotected", Text: r.config.Alert, Since: 1}}, 1, nil
	}
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

// Payloads returns the number of payloads that were fetched and not released.
func (r *Run) Payloads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}
