package mix

import (
	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// Config describes the mixture file of a run.
type Config struct {
	File    *planner.Spec
	Sources []string  // names, in the order of the file
	Cost    cost.Cost // of the file
	// Recosts is true if steps can be placed with other coefficients of cost.
	Recosts bool
	// Calibrate returns the coefficients that fit the reported times best, and how well they fit.
	Calibrate func() (costs *pb.Costed, why string, err error)
}

// Mixture is the mixture file with the overrides of the newest attempt, and the requests that wait for an answer. Not
// safe for concurrent use.
type Mixture struct {
	cfg       Config
	s         *facts.State // read only
	out       *roster.Actions
	overrides facts.Overrides
	spec      *planner.Spec // the file's with overrides applied
	asked     []*request
	answering *request // its record is being journaled
}

// request is a change of the mixture that a caller waits for.
type request struct {
	msg    *pb.MixRequest
	record *pb.Mixed // nil before it is decided
	answer func(*pb.MixReply, error)
}

// Decision is the answer to the oldest request. It is valid until the next event.
type Decision struct {
	Mixed   *pb.Mixed // journal it, then call Apply
	refused error
}

// IsEmpty reports whether no request waits.
func (d Decision) IsEmpty() bool { return d.Mixed == nil && d.refused == nil }

// New returns the mixture of a restored state. Lines for people and answers go to out.
func New(cfg Config, s *facts.State, out *roster.Actions) *Mixture {
	return &Mixture{cfg: cfg, s: s, out: out, spec: cfg.File}
}

// Overrides returns the changes that are in force over the mixture file.
func (x *Mixture) Overrides() facts.Overrides { return x.overrides }

// Spec returns the mixture file's spec with the overrides applied.
func (x *Mixture) Spec() *planner.Spec { return x.spec }

// Ask asks for a change. It is answered when it is durable, or refused. answer is called as an action of a turn
// and must not block.
func (x *Mixture) Ask(msg *pb.MixRequest, answer func(*pb.MixReply, error)) {
	x.asked = append(x.asked, &request{msg: msg, answer: answer})
}

// Decide returns the answer to the oldest request, and changes nothing.
func (x *Mixture) Decide() (d Decision) {
	if len(x.asked) > 0 {
		d.Mixed, d.refused = x.change(x.asked[0].msg)
	}
	return d
}

// Settle takes the oldest request from the queue. A refused one is answered, another one when its record is durable.
func (x *Mixture) Settle(d Decision) {
	next := x.asked[0]
	x.asked = x.asked[1:]
	if d.refused != nil {
		x.out.Answer(func() { next.answer(nil, d.refused) })
		return
	}
	next.record = d.Mixed
	x.answering = next
}

// Apply brings a change into force that is durable. inForce is true if it changes the newest attempt. It
// cannot fail for a change that was decided here.
func (x *Mixture) Apply(c *pb.Mixed) (inForce bool, err error) {
	if c.Why == "" { // changes by policies are in status and ledger
		x.out.Say("the mixture changes from step %d on: %s (%s)", c.AtStep, facts.Describe(c, x.cfg.Sources), c.By)
	}
	if x.s.Attempt != nil && c.Attempt == x.s.Attempt.Attempt {
		overrides, err := x.overrides.With(x.cfg.File.Schedule, c)
		if err != nil {
			return false, err
		}
		x.put(overrides)
		inForce = true
	}
	if now := x.answering; now != nil && now.record == c {
		x.answering = nil
		reply := &pb.MixReply{Change: x.describe(c)}
		x.out.Answer(func() { now.answer(reply, nil) })
	}
	return inForce, nil
}

// put brings overrides into force, without those that have no effect on steps from the watermark on.
func (x *Mixture) put(overrides facts.Overrides) {
	if x.s.Base != nil {
		overrides = overrides.Since(&x.s.Base.Planner)
	}
	x.overrides, x.spec = overrides, overrides.Spec(x.cfg.File)
}

// Restore takes up the overrides of the newest attempt.
func (x *Mixture) Restore() error {
	overrides, err := x.s.Overrides(x.cfg.File)
	if err == nil {
		x.put(overrides)
	}
	return err
}

// Open prints which earlier changes stay in force in the attempt that was opened.
func (x *Mixture) Open() {
	o := x.s.Attempt
	if o.Forgets {
		x.out.Say("attempt %d: changes of the mixture that were journaled for steps from %d on are dropped", o.Attempt,
			o.Step)
	}
	for _, c := range x.s.Mixed {
		if c.AtStep >= o.Step && c.Why == "" {
			x.out.Say("attempt %d: the mixture changes from step %d on: %s (%s)",
				o.Attempt, c.AtStep, facts.Describe(c, x.cfg.Sources), c.By)
		}
	}
}

// Costs returns the cost model of a step; changed is false if the mixture file's holds.
func (x *Mixture) Costs(step uint64) (_ cost.Cost, changed bool) {
	if c, ok := x.overrides.Cost(step); ok {
		return c, true
	}
	return x.cfg.Cost, false
}

// Outlook returns a function that takes a step to come. The function returns the expected share of the tokens of each
// source in that step, for the mixture known at the call. base returns the planner's state at an earlier step. No plan
// depends on it.
func (x *Mixture) Outlook(base func() *progress.State) func(step uint64) []float64 {
	return func(step uint64) []float64 { return x.ahead(base(), step) }
}

func (x *Mixture) ahead(st *progress.State, step uint64) []float64 {
	tokens := st.Tokens
	if step > uint64(st.Step) {
		tokens += uint64(float64(step-uint64(st.Step)) * float64(st.Tokens) / float64(max(st.Step, 1)))
	}
	schedule := x.spec.Schedule
	shares := schedule.Divide(schedule.At(max(step, uint64(st.Step)), tokens), nil)
	out, sum := make([]float64, len(shares)), 0.0
	for i, share := range shares {
		if out[i] = float64(share); x.spec.Unit == millrace.UnitSamples && st.Sources[i].Samples > 0 {
			out[i] *= float64(st.Sources[i].Tokens) / float64(st.Sources[i].Samples)
		}
		sum += out[i]
	}
	for i := range out {
		out[i] /= max(sum, 1)
	}
	return out
}

func (x *Mixture) describe(c *pb.Mixed) *pb.MixChange {
	return &pb.MixChange{
		AtStep:  c.AtStep,
		Text:    facts.Describe(c, x.cfg.Sources),
		By:      c.By,
		Why:     c.Why,
		Attempt: c.Attempt,
		InForce: x.s.IsInForce(c),
	}
}

// shownChanges is the number of changes that a status lists.
const shownChanges = 20

// Status returns the mixture in force at a planner's state, and its newest changes, for people.
func (x *Mixture) Status(st *progress.State) *pb.MixtureStatus {
	schedule := x.spec.Schedule.Since(uint64(st.Step), st.Tokens)
	out := &pb.MixtureStatus{}
	for i, share := range schedule.Divide(schedule.At(uint64(st.Step), st.Tokens), nil) {
		out.Weights = append(out.Weights, &pb.SourceWeight{Source: x.cfg.Sources[i], Weight: facts.DecimalShare(share)})
	}
	for _, k := range schedule.Milestones() {
		out.Milestones = append(out.Milestones, facts.DescribeMilestone(k, x.cfg.Sources))
	}
	newest := x.s.Mixed[max(0, len(x.s.Mixed)-shownChanges):]
	for _, c := range newest {
		out.Changes = append(out.Changes, x.describe(c))
	}
	out.Earlier = x.s.Changes - uint64(len(newest))
	if cost, ok := x.overrides.Cost(uint64(st.Step)); ok {
		out.Costs = &pb.Costed{Linear: cost.Linear, Quadratic: cost.Quadratic}
	}
	return out
}
