package orchestrator

import (
	"fmt"
	"math"
	"slices"

	"millrace/mixing"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/feedback"
	"millrace/orchestrator/planner/cost"
	pb "millrace/proto"
)

// loadsKept is how many steps back a trainer may report times of.
const loadsKept = 16

// load is what the microbatches of a step hold, by rank and microbatch: tokens, and the squares of the documents' lengths.
type load struct {
	microbatches    uint32
	tokens, squares []float32
}

// heard is what trainers report, and what is made of it.
type heard struct {
	policy *feedback.Policy // nil where weights do not follow losses
	losses bool             // were reported since the policy was asked last
	fit    feedback.Fit
	times  uint64          // reports when costs were fitted last
	fitted uint64          // watermark then
	timed  bool            // somebody reports times
	loads  map[uint64]load // by step, once that is so
}

// listen starts anew what is made of reports in an attempt.
func (m *Machine) listen() error {
	m.heard.loads, m.heard.fitted, m.heard.policy = map[uint64]load{}, m.s.Watermark, nil
	if m.cfg.Adaptive == nil {
		return nil
	}
	prior := sharesOf(m.cfg.Spec.Schedule.At(0, 0).Shares(nil))
	var err error
	if m.heard.policy, err = feedback.NewPolicy(*m.cfg.Adaptive, prior); err == nil {
		m.heard.policy.Restore(m.live.Policy())
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

// weigh remembers what the microbatches of a step hold, for times to be compared with.
func (m *Machine) weigh(p *pb.Plan) {
	if !m.heard.timed && m.cfg.Refit == 0 {
		return
	}
	l := load{microbatches: p.Microbatches, tokens: make([]float32, p.Ranks*p.Microbatches), squares: make([]float32, p.Ranks*p.Microbatches)}
	a := p.Assignments
	for i, n := range a.GetLength() {
		at, length, part := a.Rank[i]*p.Microbatches+a.Microbatch[i], float32(n), float32(1)
		if i < len(a.Parts) && a.Parts[i] > 1 {
			part = float32(a.Parts[i])
		}
		l.tokens[at] += length / part
		l.squares[at] += length * length / part
	}
	m.heard.loads[p.Step] = l
	delete(m.heard.loads, p.Step-min(p.Step, loadsKept))
}

// Reported observes what a trainer measured. What comes of another attempt, or too late, is left out.
func (m *Machine) Reported(r *pb.Reported) {
	if m.s.Attempt == nil || r.Attempt != m.s.Attempt.Attempt {
		return
	}
	for _, l := range r.Losses {
		i := slices.IndexFunc(m.cfg.Sources, func(s Source) bool { return s.Name == l.Source })
		if m.heard.policy != nil && i >= 0 {
			m.heard.policy.Report(r.Step, i, l.LossSum, l.Tokens)
			m.heard.losses = true
		}
	}
	m.heard.timed = m.heard.timed || len(r.Seconds) > 0
	of, known := m.heard.loads[r.Step]
	for i, microbatch := range r.Microbatch {
		at := int(r.Rank)*int(of.microbatches) + int(microbatch)
		if known && i < len(r.Seconds) && microbatch < of.microbatches && at < len(of.tokens) && r.Seconds[i] > 0 && !math.IsInf(r.Seconds[i], 0) {
			m.heard.fit.Add(float64(of.tokens[at]), float64(of.squares[at]), r.Seconds[i])
		}
	}
}

// adapt journals what follows from reports, if it is time.
func (m *Machine) adapt() ([]facts.Fact, error) {
	if m.s.Attempt == nil || m.s.Ended != nil {
		return nil, nil
	}
	if p := m.heard.policy; p != nil && m.heard.losses && p.Due(m.s.Watermark) {
		m.heard.losses = false
		return m.adaptWeights(p)
	}
	if every := m.cfg.Refit; every > 0 && m.cfg.Recost != nil && m.s.Watermark >= m.heard.fitted+every {
		m.heard.fitted = m.s.Watermark
		return m.adaptCosts()
	}
	return nil, nil
}

// adaptWeights asks the policy for weights from the next step on.
func (m *Machine) adaptWeights(p *feedback.Policy) ([]facts.Fact, error) {
	st := &m.s.Tail().Planner
	active := make([]bool, len(st.Sources))
	for i := range active {
		active[i] = !st.Sources[i].Finished
	}
	parts, ok := p.Weights(m.s.Watermark, sharesOf(m.spec.Schedule.At(uint64(st.Step), st.Tokens).Shares(active)))
	if !ok {
		return nil, nil
	}
	free, _ := m.mixFrom()
	c := &pb.Mixed{Attempt: m.s.Attempt.Attempt, Known: m.s.Next, AtStep: free, By: m.cfg.Adaptive.Policy, Policy: p.Summary(),
		Why: fmt.Sprintf("losses of steps below %d", m.s.Watermark)}
	from, err := m.at(c)
	if err != nil {
		return nil, err
	}
	milestone := &pb.Milestone{From: from.Count, Tokens: from.Measure == mixing.Tokens}
	for _, n := range parts {
		milestone.Weights = append(milestone.Weights, fmt.Sprint(n))
	}
	c.Change = &pb.Mixed_Schedule{Schedule: &pb.Reweighed{Milestones: []*pb.Milestone{milestone}}}
	live, err := m.live.With(m.cfg.Spec.Schedule, c)
	if err == nil {
		err = m.receivable(live, c)
	}
	if err != nil {
		return nil, nil // the sources that have a share are through: the run ends by itself
	}
	return []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Mixed{Mixed: c}}}}, nil
}

// leastGain is what other coefficients have to explain more of the variance of times to be worth a change.
const leastGain = 0.001

// adaptCosts brings coefficients into force that fit the times better, from the next step on.
func (m *Machine) adaptCosts() ([]facts.Fact, error) {
	fit := &m.heard.fit
	now := m.costNow()
	linear, quadratic, ok := fit.Best(now.Linear, now.Quadratic)
	was, is := fit.R2(now.Linear, now.Quadratic), fit.R2(linear, quadratic)
	if !ok || fit.Reports() == m.heard.times || is < was+leastGain {
		return nil, nil
	}
	m.heard.times = fit.Reports()
	c := &pb.Mixed{Attempt: m.s.Attempt.Attempt, Known: m.s.Next, AtStep: m.s.Next, By: "refit", Why: m.fitText(was, is),
		Change: &pb.Mixed_Costs{Costs: &pb.Costed{Linear: linear, Quadratic: quadratic}}}
	return []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Mixed{Mixed: c}}}}, nil
}

func (m *Machine) fitText(was, is float64) string {
	return fmt.Sprintf("%d reported times, R² %.4f, was %.4f", m.heard.fit.Reports(), is, was)
}

// costNow is the cost model of the next step.
func (m *Machine) costNow() cost.Cost {
	if cost, ok := m.live.Cost(m.s.Next); ok {
		return cost
	}
	return m.cfg.Cost
}

// refit makes what was asked for by hand: coefficients that fit best.
func (m *Machine) refit(c *pb.Mixed) error {
	now := m.costNow()
	linear, quadratic, ok := m.heard.fit.Best(now.Linear, now.Quadratic)
	if !ok {
		return errNoReports
	}
	c.Why = m.fitText(m.heard.fit.R2(now.Linear, now.Quadratic), m.heard.fit.R2(linear, quadratic))
	return m.costs(c, &pb.Costed{Linear: linear, Quadratic: quadratic})
}

// calibration is how well predicted costs go with reported times, nil where there are no reports.
func (m *Machine) calibration() *pb.Calibration {
	fit, now := &m.heard.fit, m.costNow()
	if fit.Reports() == 0 {
		return nil
	}
	linear, quadratic, _ := fit.Best(now.Linear, now.Quadratic)
	return &pb.Calibration{Reports: fit.Reports(), R2: fit.R2(now.Linear, now.Quadratic), Best: &pb.Costed{Linear: linear, Quadratic: quadratic}, BestR2: fit.R2(linear, quadratic)}
}
