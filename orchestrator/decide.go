package orchestrator

import (
	"slices"

	"millrace/internal/activity"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/mix"
	"millrace/orchestrator/roster"
	"millrace/orchestrator/scale"
	"millrace/proto"
)

// Decision follows from the state and the observed facts. To decide changes nothing: Machine.Apply carries a decision
// out when its facts are durable. It is valid until the next event.
type Decision struct {
	Facts   []facts.Fact // to journal
	Failed  error        // why the run cannot continue
	effects []effect
}

// An effect is a change that needs no record because it can be learnt again, or an answer. It is applied before the
// facts.
type effect interface{ apply(m *Machine) }

// IsEmpty reports whether there is nothing left to do.
func (d Decision) IsEmpty() bool { return len(d.Facts) == 0 && len(d.effects) == 0 && d.Failed == nil }

func journal(facts ...facts.Fact) Decision { return Decision{Facts: facts} }

func perform(effects ...effect) Decision { return Decision{effects: effects} }

// Decide returns what to do next. The machine is the same after it. Concerns come in a fixed order; the first that has
// something to do decides.
func (m *Machine) Decide() Decision {
	switch {
	case m.failed != nil && m.cfg.Further:
		return m.decideLoaders() // they may leave
	case m.failed != nil:
		return Decision{}
	}
	for _, decide := range []func() Decision{m.decideSaved, m.decideMasks, m.decideMix, m.decideReports,
		m.decideRanks, m.decideWatermark} {
		if d := decide(); !d.IsEmpty() {
			return d
		}
	}
	if m.ranks.IsReshapeDue() {
		return perform(reshaped{})
	}
	if m.ranks.AreDone() && !m.cfg.Lasts {
		return Decision{}
	}
	if d := m.decideScale(); !d.IsEmpty() {
		return d
	}
	for _, decide := range []func() Decision{m.decideLoaders, m.decidePlan, m.decideNews} {
		if d := decide(); !d.IsEmpty() {
			return d
		}
	}
	return Decision{}
}

// Apply carries out a decision whose facts are durable: it advances the state and publishes.
func (m *Machine) Apply(d Decision) {
	if d.Failed != nil {
		m.fail(d.Failed)
		return
	}
	for _, e := range d.effects {
		e.apply(m)
	}
	for _, f := range d.Facts {
		m.applyFact(f)
	}
}

// decideSaved journals the newest step whose model checkpoint is durable.
func (m *Machine) decideSaved() Decision {
	if m.saves.found == nil {
		return Decision{}
	}
	return journal(facts.Fact{Record: &proto.Record{Fact: &proto.Record_Saved{Saved: m.saves.found}}})
}

// decideMasks journals the segments that were found bad, unless they are more than a quarantine budget takes.
func (m *Machine) decideMasks() Decision {
	if len(m.masks.found) == 0 {
		return Decision{}
	}
	masked := &proto.Masked{Masks: m.masks.found}
	made := []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Masked{Masked: masked}}}}
	if err := m.quarantine.check(made); err != nil {
		return Decision{Failed: err}
	}
	return journal(made...)
}

// decideMix journals the next change of the mixture that a user asked for, or refuses it.
func (m *Machine) decideMix() Decision {
	d := m.mix.Decide()
	if d.IsEmpty() {
		return Decision{}
	}
	out := perform(mixAnswer(d))
	if d.Mixed != nil {
		out.Facts = []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Mixed{Mixed: d.Mixed}}}}
	}
	return out
}

type mixAnswer mix.Decision

func (d mixAnswer) apply(m *Machine) { m.mix.Settle(mix.Decision(d)) }

// decideReports journals the changes that follow from the reports of trainers.
func (m *Machine) decideReports() Decision {
	d := m.reports.decide()
	if d.failed != nil {
		return Decision{Failed: d.failed}
	}
	if d.isEmpty() {
		return Decision{}
	}
	out := perform(d)
	if d.mixed != nil {
		out.Facts = []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Mixed{Mixed: d.mixed}}}}
	}
	return out
}

// apply implements effect.
func (d adaption) apply(m *Machine) { m.reports.settle(d) }

// decideRanks opens an attempt, or continues the newest one, when the ranks have said where they start.
func (m *Machine) decideRanks() Decision {
	if !m.pinned() {
		return Decision{}
	}
	d := m.ranks.Decide(m.mix.Overrides())
	switch {
	case d.IsEmpty():
		return Decision{}
	case d.Opened != nil:
		return journal(facts.Fact{Record: &proto.Record{Fact: &proto.Record_Opened{Opened: d.Opened}}, At: d.At})
	}
	return perform(rankAnswers(d))
}

type rankAnswers attempts.Decision

func (d rankAnswers) apply(m *Machine) {
	if m.ranks.Settle(attempts.Decision(d)) {
		m.afterBegin()
	}
}

// decideWatermark moves the watermark to the slowest rank.
func (m *Machine) decideWatermark() Decision {
	if a := m.ranks.Acknowledged(); a != nil {
		return journal(acknowledged(a))
	}
	return Decision{}
}

func acknowledged(a *proto.Acknowledged) facts.Fact {
	return facts.Fact{Record: &proto.Record{Fact: &proto.Record_Acknowledged{Acknowledged: a}}}
}

// decideLoaders journals the manifests that were seen first, then who reads which stripe, and publishes the directory.
func (m *Machine) decideLoaders() (out Decision) {
	for _, mf := range m.roster.Unpinned() {
		out.Facts = append(out.Facts,
			facts.Fact{Record: &proto.Record{Fact: &proto.Record_Pinned{Pinned: &proto.Pinned{Manifest: mf}}}})
	}
	if len(out.Facts) > 0 {
		return out
	}
	d := m.roster.Decide(roster.Journal{Term: m.s.AssignTerm, Next: m.s.Next, Manifests: m.s.Manifests,
		IsIdle:    m.isIdle(),
		IsAwaited: m.s.Attempt != nil && m.s.Ended == nil && m.s.Next == m.s.Watermark,
		Holder: func(source string, stripe uint32) *proto.Assigned {
			return m.s.Holders[facts.Stripe{Source: source, Index: stripe}]
		}})
	for _, a := range d.Assigned {
		out.Facts = append(out.Facts, facts.Fact{Record: &proto.Record{Fact: &proto.Record_Assigned{Assigned: a}}})
	}
	switch {
	case len(out.Facts) > 0:
		return out
	case !d.IsEmpty():
		return perform(loaderOrders(d))
	case m.roster.HasMoved():
		return perform(directoryMoved{})
	}
	return out
}

type loaderOrders roster.Decision

func (d loaderOrders) apply(m *Machine) { m.roster.Settle(roster.Decision(d)) }

// decideScale orders another number of loaders. It needs no record: the engine knows its goal.
func (m *Machine) decideScale() Decision {
	if m.control == nil {
		return Decision{}
	}
	o, ok := m.control.Decide()
	if !ok {
		return Decision{}
	}
	return perform(scaled(o))
}

type scaled scale.Order

func (d scaled) apply(m *Machine) {
	o := scale.Order(d)
	m.control.Settle(o)
	if o.Line != "" {
		m.out.Say("%s", o.Line)
	}
	m.out.Scale(o.Loaders)
}

type directoryMoved struct{}

func (directoryMoved) apply(m *Machine) {
	m.sidecars.Broadcast(&proto.SidecarOrder{Order: &proto.SidecarOrder_Loaders{Loaders: m.roster.TakeNews()}})
}

// reshaped takes the run to the topology of ranks that wait for that. It needs no record: until they open an attempt,
// every orchestrator learns it from the same ranks.
type reshaped struct{}

func (reshaped) apply(m *Machine) { m.ranks.TakeTopology() }

// isReshape reports whether the decision takes the run to another topology.
func (d Decision) isReshape() bool { return slices.Contains(d.effects, effect(reshaped{})) }

// hasRoom reports whether the runway has room for another step.
func (m *Machine) hasRoom() bool {
	fastest, _ := m.ranks.Spread()
	return m.planning.hasRoom(fastest)
}

// decidePlan seals the next step if the runway has room and its selection is drawn, or ends the run, or fails it at the
// place of a step that cannot be planned.
func (m *Machine) decidePlan() Decision {
	switch drawn := m.planning.drawn; {
	case !m.hasRoom() || m.isIdle():
		return Decision{}
	case drawn == nil && m.planning.stale:
		return perform(drawNext{})
	case drawn == nil:
		return Decision{}
	case drawn.failed != nil && m.s.Watermark < m.s.Next:
		return Decision{}
	case drawn.failed != nil:
		return Decision{Failed: drawn.failed}
	case drawn.ended != "":
		end := &proto.Ended{Attempt: m.s.Attempt.Attempt, Steps: m.s.Next, Reason: drawn.ended}
		made := []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Ended{Ended: end}}}}
		if a := m.ranks.AtEnd(end); a != nil {
			made = append(made, acknowledged(a))
		}
		return journal(made...)
	default:
		made, err := m.planning.seal(drawn)
		if err == nil {
			if q := m.quarantine.rejected(&drawn.selection); q != nil {
				made = append(made, facts.Fact{Record: &proto.Record{Fact: &proto.Record_Quarantined{Quarantined: q}}})
			}
			err = m.quarantine.check(made)
		}
		if err != nil {
			return perform(unplannable{err})
		}
		return journal(made...)
	}
}

// unplannable notes that the next step cannot be planned. It needs no record: every orchestrator finds the same. The
// run fails when its ranks have consumed the steps before: how many they receive must not depend on their pace.
type unplannable struct{ why error }

func (d unplannable) apply(m *Machine) {
	m.planning.stop(d.why)
	if left := m.s.Next - m.s.Watermark; left > 0 {
		m.out.Say("step %d cannot be planned. The run fails when its ranks have consumed the %d steps before it: %s",
			m.s.Next, left, d.why)
	}
}

// drawNext draws documents for the next step. It needs no record: every orchestrator draws the same documents from the
// same facts.
type drawNext struct{}

func (drawNext) apply(m *Machine) {
	missing, err := m.planning.draw()
	if err != nil {
		unplannable{err}.apply(m)
	} else if missing != nil {
		m.roster.Want(missing.source, m.queues[missing.source].Demand(missing.ordinal, len(m.queues)))
	}
}

// decideNews reports to the log and to sidecars which alerts begin and end, and why trainers wait.
func (m *Machine) decideNews() (out Decision) {
	if d := m.alerts.decide(m.lacking()); d != nil {
		out.effects = append(out.effects, d)
	}
	if !m.alerts.warned && m.pinned() {
		out.effects = append(out.effects, shuffleWarned{})
	}
	if cause := m.Waiting(); cause != m.told {
		out.effects = append(out.effects, waitingChanged(cause))
	}
	return out
}

// apply implements effect.
func (d *alerting) apply(m *Machine) {
	if m.alerts.settle(d, m.out) {
		m.sidecars.Broadcast(m.alerts.order())
	}
}

type shuffleWarned struct{}

func (shuffleWarned) apply(m *Machine) { m.alerts.warnShuffle(m.s.Manifests, m.out) }

type waitingChanged activity.Cause

func (d waitingChanged) apply(m *Machine) {
	m.told = activity.Cause(d)
	m.sidecars.Broadcast(waitingOrder(m.told))
}
