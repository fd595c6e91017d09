package orchestrator

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"millrace/mixing"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/feedback"
	"millrace/orchestrator/mix"
	pb "millrace/proto"
)

// loadsKept is how many steps below the watermark a trainer may report times of.
const loadsKept = 16

// load is the work of a step's microbatches, by rank and microbatch: tokens, and the squares of the documents' lengths.
type load struct {
	microbatches    uint32
	tokens, squares []float32
}

// reports collects the losses and times that trainers report, and turns them into changes of weights and costs.
type reports struct {
	cfg    Config
	names  []string     // of the sources
	s      *facts.State // read only
	mix    *mix.Mixture
	policy *feedback.Policy // nil if weights do not follow losses
	losses bool             // were reported since the policy was asked last
	fit    feedback.Calibration
	times  uint64          // reports when costs were fitted last
	fitted uint64          // watermark then
	timed  bool            // a trainer reports times
	loads  map[uint64]load // by step, once that is so
	oldest uint64          // no load is of a lower step
}

// restart forgets the reports of the attempt before.
func (r *reports) restart() error {
	r.loads, r.oldest, r.fitted, r.policy = map[uint64]load{}, r.s.Watermark, r.s.Watermark, nil
	if r.cfg.Adaptive == nil {
		return nil
	}
	prior := sharesOf(r.cfg.Spec.Schedule.At(0, 0).Shares(nil))
	var err error
	if r.policy, err = feedback.NewPolicy(*r.cfg.Adaptive, prior); err == nil {
		r.policy.Restore(r.mix.Overrides().Policy())
	}
	return err
}

func sharesOf(parts []uint32) []float64 {
	out := make([]float64, len(parts))
	for i, s := range parts {
		out[i] = float64(s) / mixing.One
	}
	return out
}

// remember keeps the work of a step's microbatches, to compare reported times with it.
func (r *reports) remember(p *pb.Plan) {
	if !r.timed && r.cfg.Refit == 0 {
		return
	}
	parts := p.Ranks * p.Microbatches
	l := load{microbatches: p.Microbatches, tokens: make([]float32, parts), squares: make([]float32, parts)}
	a := p.Assignments
	for i, n := range a.GetLength() {
		at, length, part := a.Rank[i]*p.Microbatches+a.Microbatch[i], float32(n), float32(1)
		if i < len(a.Parts) && a.Parts[i] > 1 {
			part = float32(a.Parts[i])
		}
		l.tokens[at] += length / part
		l.squares[at] += length * length / part
	}
	r.loads[p.Step] = l
	for ; r.oldest+loadsKept < r.s.Watermark; r.oldest++ {
		delete(r.loads, r.oldest)
	}
}

// observe observes a trainer's measurements. Those of another attempt, and those that come too late, are left out.
func (r *reports) observe(report *pb.Reported) {
	if r.s.Attempt == nil || report.Attempt != r.s.Attempt.Attempt {
		return
	}
	for _, l := range report.Losses {
		if i := slices.Index(r.names, l.Source); r.policy != nil && i >= 0 {
			r.policy.Report(report.Step, i, l.LossSum, l.Tokens)
			r.losses = true
		}
	}
	r.timed = r.timed || len(report.Seconds) > 0
	of, known := r.loads[report.Step]
	for i, microbatch := range report.Microbatch {
		at := int(report.Rank)*int(of.microbatches) + int(microbatch)
		if !known || i >= len(report.Seconds) || microbatch >= of.microbatches || at >= len(of.tokens) {
			continue
		}
		if seconds := report.Seconds[i]; seconds > 0 && !math.IsInf(seconds, 0) {
			r.fit.Add(float64(of.tokens[at]), float64(of.squares[at]), seconds)
		}
	}
}

// adaption is a decision about reports: a change of the mixture, or nil if none is worth it, and the reports after it.
type adaption struct {
	mixed  *pb.Mixed
	policy *feedback.Policy // has taken the losses into account; nil: it was not asked
	fitted bool             // costs were fitted
	failed error
}

func (d adaption) isEmpty() bool { return d.policy == nil && !d.fitted }

// settle takes up a decision.
func (r *reports) settle(d adaption) {
	if d.policy != nil {
		r.policy, r.losses = d.policy, false
	}
	if d.fitted {
		r.fitted = r.s.Watermark
		if d.mixed != nil {
			r.times = r.fit.Reports()
		}
	}
}

// apply takes up a journaled change of the newest attempt: the policy remembers as much as a restart would.
func (r *reports) apply(c *pb.Mixed) {
	if r.policy != nil && len(c.Policy) > 0 {
		r.policy.Restore(c.Policy)
	}
}

// decide returns the change that follows from reports, if it is time. It changes nothing.
func (r *reports) decide() adaption {
	if r.s.Attempt == nil || r.s.Ended != nil {
		return adaption{}
	}
	if p := r.policy; p != nil && r.losses && p.IsDue(r.s.Watermark) {
		return r.weights(p.Clone())
	}
	if every := r.cfg.Refit; every > 0 && r.cfg.Recost != nil && r.s.Watermark >= r.fitted+every {
		return adaption{fitted: true, mixed: r.costs()}
	}
	return adaption{}
}

// weights asks a policy for weights from the next step on.
func (r *reports) weights(p *feedback.Policy) adaption {
	d := adaption{policy: p}
	st := &r.s.Tail().Planner
	active := make([]bool, len(st.Sources))
	for i := range active {
		active[i] = !st.Sources[i].Finished
	}
	schedule := r.mix.Spec().Schedule
	parts, ok := p.Weights(r.s.Watermark, sharesOf(schedule.At(uint64(st.Step), st.Tokens).Shares(active)))
	if !ok {
		return d
	}
	free, _ := r.mix.FreeFrom()
	c := &pb.Mixed{
		Attempt: r.s.Attempt.Attempt,
		Known:   r.s.Next,
		AtStep:  free,
		By:      r.cfg.Adaptive.Policy,
		Policy:  p.Summary(),
		Why:     fmt.Sprintf("losses of steps below %d", r.s.Watermark),
	}
	from, err := r.mix.PointOf(c)
	if err != nil {
		d.failed = err
		return d
	}
	milestone := &pb.Milestone{From: from.Count, Tokens: from.Measure == mixing.Tokens}
	for _, n := range parts {
		milestone.Weights = append(milestone.Weights, fmt.Sprint(n))
	}
	c.Change = &pb.Mixed_Schedule{Schedule: &pb.Reweighed{Milestones: []*pb.Milestone{milestone}}}
	overrides, err := r.mix.Overrides().With(r.cfg.Spec.Schedule, c)
	if err == nil {
		err = r.mix.Receivable(overrides, c)
	}
	if err == nil { // else the sources that have a share are read to their end: the run ends by itself
		d.mixed = c
	}
	return d
}

// leastGain is the least further part of the variance of times that other coefficients must explain to be worth a
// change.
const leastGain = 0.001

// costs returns the change to coefficients that fit the times better, nil if none do.
func (r *reports) costs() *pb.Mixed {
	now, _ := r.mix.Costs(r.s.Next)
	linear, quadratic, ok := r.fit.Best(now.Linear, now.Quadratic)
	was, is := r.fit.R2(now.Linear, now.Quadratic), r.fit.R2(linear, quadratic)
	if !ok || r.fit.Reports() == r.times || is < was+leastGain {
		return nil
	}
	return &pb.Mixed{
		Attempt: r.s.Attempt.Attempt,
		Known:   r.s.Next,
		AtStep:  r.s.Next,
		By:      "refit",
		Why:     r.fitText(was, is),
		Change:  &pb.Mixed_Costs{Costs: &pb.Costed{Linear: linear, Quadratic: quadratic}},
	}
}

func (r *reports) fitText(was, is float64) string {
	return fmt.Sprintf("%d reported times, R² %.4f, was %.4f", r.fit.Reports(), is, was)
}

var errNoReports = errors.New("trainers have not reported enough times of microbatches that differ: " +
	"call loader.report_time for some hundred of them")

// calibrate returns the coefficients that fit the times best, and how well they fit.
func (r *reports) calibrate() (costs *pb.Costed, why string, err error) {
	now, _ := r.mix.Costs(r.s.Next)
	linear, quadratic, ok := r.fit.Best(now.Linear, now.Quadratic)
	if !ok {
		return nil, "", errNoReports
	}
	why = r.fitText(r.fit.R2(now.Linear, now.Quadratic), r.fit.R2(linear, quadratic))
	return &pb.Costed{Linear: linear, Quadratic: quadratic}, why, nil
}

// calibration says how well predicted costs fit the reported times, nil if there are no reports.
func (r *reports) calibration() *pb.Calibration {
	now, _ := r.mix.Costs(r.s.Next)
	if r.fit.Reports() == 0 {
		return nil
	}
	linear, quadratic, _ := r.fit.Best(now.Linear, now.Quadratic)
	return &pb.Calibration{Reports: r.fit.Reports(), R2: r.fit.R2(now.Linear, now.Quadratic),
		Best: &pb.Costed{Linear: linear, Quadratic: quadratic}, BestR2: r.fit.R2(linear, quadratic)}
}

// saves collects the steps whose model checkpoints are durable, until they are journaled.
type saves struct {
	s     *facts.State
	found *pb.Saved // not yet journaled
}

// observe observes that a step's model checkpoint is durable.
func (k *saves) observe(step uint64) {
	if step > max(k.s.Saved, k.found.GetStep()) || !k.s.HasSaved && k.found == nil {
		k.found = &pb.Saved{Step: step}
	}
}

// apply observes that the record is durable.
func (k *saves) apply() { k.found = nil }
