package orchestrator

import (
	"errors"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// mixAsked is a change of the mixture that somebody waits for.
type mixAsked struct {
	request *pb.MixRequest
	fact    *pb.Mixed // what it came to; nil before
	answer  func(*pb.MixReply, error)
}

// Mix asks for a change of the mixture. It is answered when it is durable, or why it cannot be; answer must not block.
func (m *Machine) Mix(request *pb.MixRequest, answer func(*pb.MixReply, error)) {
	m.toMix = append(m.toMix, &mixAsked{request: request, answer: answer})
}

// mix journals the next change that is asked for. What cannot be is answered at once.
func (m *Machine) mix() []facts.Fact {
	for len(m.toMix) > 0 {
		next := m.toMix[0]
		m.toMix = m.toMix[1:]
		var err error
		if next.fact, err = m.change(next.request); err != nil {
			next.answer(nil, err)
			continue
		}
		m.mixing = next
		return []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Mixed{Mixed: next.fact}}}}
	}
	return nil
}

// mixed takes up a change that is durable, and answers who asked for it.
func (m *Machine) mixed(c *pb.Mixed) {
	if c.Why == "" { // what policies decide is in status and ledger
		m.out.Say("the mixture changes from step %d on: %s (%s)", c.AtStep, facts.Describe(c, m.sourceNames()), c.By)
	}
	if m.s.Attempt != nil && c.Attempt == m.s.Attempt.Attempt {
		live, err := m.live.With(m.cfg.Spec.Schedule, c)
		if err != nil {
			m.fail(err) // it was tried before it was journaled
			return
		}
		m.put(live)
		if m.heard.policy != nil && len(c.Policy) > 0 {
			m.heard.policy.Restore(c.Policy) // what a restart would remember
		}
	}
	if now := m.mixing; now != nil && now.fact == c {
		m.mixing = nil
		now.answer(&pb.MixReply{Change: m.shown(c)}, nil)
	}
}

// put brings a mixture into force: what the selector has drawn ahead is drawn again.
func (m *Machine) put(live facts.Overrides) {
	m.live, m.spec = live, live.Spec(m.cfg.Spec)
	m.differ, m.selector = planner.NewDiffer(m.spec), nil
}

// relive takes up what holds beside the mixture file in the newest attempt.
func (m *Machine) relive() error {
	live, err := m.s.Overrides(m.cfg.Spec)
	if err != nil {
		return err
	}
	m.put(live)
	return m.listen()
}

// place deals a step to ranks, by the cost model in force.
func (m *Machine) place(sel *planner.Selection) (*millrace.Plan, error) {
	if cost, ok := m.live.Cost(uint64(sel.Step)); ok && m.cfg.Recost != nil {
		return m.cfg.Recost(cost)(sel)
	}
	return m.cfg.Place(sel)
}

// change makes what is asked for into a fact, or says what has to be asked for instead.
func (m *Machine) change(r *pb.MixRequest) (*pb.Mixed, error) {
	c := &pb.Mixed{Attempt: m.s.Attempt.GetAttempt(), Known: m.s.Next, AtStep: m.s.Next, By: "millrace mix"}
	if r.Later || m.s.Attempt == nil {
		c.Attempt, c.Known, c.AtStep = c.Attempt+1, 0, 0
	}
	free, _ := m.mixFrom()
	if !r.Later && m.s.Attempt != nil {
		c.AtStep = free
	}
	if r.HasFrom {
		c.AtStep = r.From
	}
	if err := m.inTime(r, c, free); err != nil {
		return nil, err
	}
	if err := m.what(r, c); err != nil {
		return nil, err
	}
	live, err := m.live.With(m.cfg.Spec.Schedule, c)
	if err == nil {
		err = live.Spec(m.cfg.Spec).Validate()
	}
	if err == nil {
		err = m.receivable(live, c)
	}
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%w", err)
	}
	return c, nil
}

// mixFrom is the first place in the schedule at which a change may begin.
func (m *Machine) mixFrom() (step, tokens uint64) {
	if m.s.Attempt == nil {
		return 0, 0
	}
	at, tokens := m.spec.FreeFrom(&m.s.Tail().Planner)
	return uint64(at), tokens
}

// inTime refuses what comes too late for a step, or would fall into the middle of a window of an attempt to come.
func (m *Machine) inTime(r *pb.MixRequest, c *pb.Mixed, free uint64) error {
	window := uint64(max(m.cfg.Spec.Window, 1))
	switch {
	case r.Later && c.AtStep%window != 0:
		return millrace.Errorf(millrace.ErrInvalid, "step %d lies inside a window of %d steps, and an attempt may begin inside it as well: say --from-step %d or %d",
			c.AtStep, window, c.AtStep-c.AtStep%window, c.AtStep-c.AtStep%window+window)
	case r.Later && !r.HasFrom:
		return millrace.Errorf(millrace.ErrInvalid, "a change for an attempt to come needs its step: say --from-step")
	case c.Known == 0 && c.Attempt > m.s.Attempt.GetAttempt():
		return nil
	case m.s.Ended != nil:
		return millrace.Errorf(millrace.ErrInvalid, "the run ends after step %d, and all of its steps are planned: there is nothing left to change", m.s.Ended.Steps)
	case c.AtStep < m.s.Next:
		return millrace.Errorf(millrace.ErrInvalid, "step %d is in the past: the steps below %d are sealed; say --from-step %d or later, or --next-attempt, to have it hold when the ranks start again from a state at or before step %d",
			c.AtStep, m.s.Next, free, c.AtStep)
	case c.AtStep < free:
		return millrace.Errorf(millrace.ErrInvalid, "step %d belongs to the window of %d steps that is under way, whose steps are drawn together: say --from-step %d or later",
			c.AtStep, window, free)
	}
	return nil
}

// what fills in what changes.
func (m *Machine) what(r *pb.MixRequest, c *pb.Mixed) (err error) {
	var milestones []mixing.Milestone
	switch ask := r.GetChange().(type) {
	case *pb.MixRequest_Set:
		milestones, err = m.setMilestones(c, ask.Set)
	case *pb.MixRequest_Schedule:
		milestones, err = m.scheduleMilestones(c, ask.Schedule)
	case *pb.MixRequest_Remove:
		milestones, err = m.withoutMilestones(c, ask.Remove)
	case *pb.MixRequest_Add:
		milestones, err = m.addedMilestones(c, ask.Add)
	case *pb.MixRequest_Skip:
		if !r.HasFrom {
			return millrace.Errorf(millrace.ErrInvalid, "a skip needs its first step: say --from-step")
		}
		c.Change = &pb.Mixed_Skip{Skip: ask.Skip}
		return nil
	case *pb.MixRequest_Costs:
		return m.costs(c, ask.Costs)
	case *pb.MixRequest_Calibrate:
		return m.refit(c)
	default:
		return millrace.Errorf(millrace.ErrInvalid, "it says nothing to change")
	}
	if err != nil {
		return err
	}
	change := &pb.Reweighed{}
	for _, k := range milestones {
		change.Milestones = append(change.Milestones, facts.MilestoneToProto(k))
	}
	c.Change = &pb.Mixed_Schedule{Schedule: change}
	return nil
}

var errNoReports = errors.New("trainers have not reported enough times of microbatches that differ: call loader.report_time for some hundred of them")

func (m *Machine) costs(c *pb.Mixed, costs *pb.Costed) error {
	if m.cfg.Recost == nil || costs.Linear == 0 && costs.Quadratic == 0 {
		return millrace.Errorf(millrace.ErrInvalid, "the costs are both 0: say at least one")
	}
	c.Change = &pb.Mixed_Costs{Costs: costs}
	return nil
}

// receivable refuses weights that no source which is not through can receive: the run would end.
func (m *Machine) receivable(live facts.Overrides, c *pb.Mixed) error {
	if c.GetSchedule() == nil || m.s.Attempt == nil {
		return nil
	}
	st := &m.s.Tail().Planner
	for i, can := range live.Schedule(m.cfg.Spec.Schedule).CanReceive(max(c.AtStep, uint64(st.Step)), st.Tokens) {
		if can && !st.Sources[i].Finished {
			return nil
		}
	}
	return errors.New("every source that is not read to its end has a weight of 0: give one of them a weight")
}

func (m *Machine) sourceNames() []string {
	names := make([]string, len(m.cfg.Sources))
	for i := range m.cfg.Sources {
		names[i] = m.cfg.Sources[i].Name
	}
	return names
}

func (m *Machine) shown(c *pb.Mixed) *pb.MixChange {
	return &pb.MixChange{AtStep: c.AtStep, Text: facts.Describe(c, m.sourceNames()), By: c.By, Why: c.Why, Attempt: c.Attempt, InForce: m.s.InForce(c)}
}

// tellMixed prints which earlier changes stay in force in the attempt that was opened.
func (m *Machine) tellMixed() {
	o := m.s.Attempt
	if o.Forgets {
		m.out.Say("attempt %d: changes of the mixture that were journaled for steps from %d on are dropped", o.Attempt, o.Step)
	}
	for _, c := range m.s.Mixed {
		if c.AtStep >= o.Step && c.Why == "" {
			m.out.Say("attempt %d: the mixture changes from step %d on: %s (%s)", o.Attempt, c.AtStep, facts.Describe(c, m.sourceNames()), c.By)
		}
	}
}

// mixture returns the mixture in force at the next step to seal and its changes, for people.
func (m *Machine) mixture(st *progress.State) *pb.MixtureStatus {
	schedule, names := m.spec.Schedule.Since(uint64(st.Step), st.Tokens), m.sourceNames()
	out := &pb.MixtureStatus{}
	for i, share := range schedule.Divide(schedule.At(uint64(st.Step), st.Tokens), nil) {
		out.Weights = append(out.Weights, &pb.SourceWeight{Source: names[i], Weight: facts.DecimalShare(share)})
	}
	for _, k := range schedule.Milestones() {
		out.Milestones = append(out.Milestones, facts.DescribeMilestone(k, names))
	}
	for _, c := range m.s.Mixed {
		out.Changes = append(out.Changes, m.shown(c))
	}
	out.Calibration = m.calibration()
	if cost, ok := m.live.Cost(uint64(st.Step)); ok {
		out.Costs = &pb.Costed{Linear: cost.Linear, Quadratic: cost.Quadratic}
	}
	return out
}
