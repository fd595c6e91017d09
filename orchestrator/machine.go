package orchestrator

import (
	"millrace"
	"millrace/internal/activity"
	"millrace/internal/wire"
	"millrace/orchestrator/attempts"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/figures"
	"millrace/orchestrator/mix"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/roster"
	"millrace/orchestrator/scale"
	"millrace/proto"
)

// Machine is the orchestrator without its goroutine, sockets and disk. It holds the journaled state and composes the
// small machines that observe, decide and publish, each for one concern. Not safe for concurrent use: the loop owns it.
type Machine struct {
	cfg        Config
	s          *facts.State
	out        *roster.Actions
	roster     *roster.Roster
	sidecars   *roster.Sidecars
	queues     offers.Queues // the roster's
	ranks      *attempts.Ranks
	mix        *mix.Mixture
	reports    *reports
	planning   *planning
	quarantine *quarantine
	masks      *masking
	alerts     *alerts
	figures    *figures.Board
	saves      *saves
	starvation roster.Starvation
	control    *scale.Control // of the number of loaders; nil: it is fixed
	told       activity.Cause // the newest reason for waiting that was sent to sidecars
	failed     error
}

// NewMachine returns the machine of a restored state. Nothing happens before the first event.
func NewMachine(cfg Config, s *facts.State) (*Machine, error) {
	topology, err := cfg.asLeft(s)
	if err != nil {
		return nil, err
	}
	cfg.Topology = &topology // shared by all parts of the machine
	m := &Machine{cfg: cfg, s: s, out: &roster.Actions{}, alerts: &alerts{}, saves: &saves{s: s},
		figures: figures.New()}
	loaders := roster.Config{Loaders: cfg.Loaders, Memory: cfg.Memory, Up: cfg.Up, Program: cfg.By,
		Compare: cfg.Compare, Fence: m.fence}
	var names []string
	for _, src := range cfg.Sources {
		loaders.Sources = append(loaders.Sources,
			roster.Source{Name: src.Name, Stripes: src.Stripes, Work: src.Work, Resident: src.Resident})
		names = append(names, src.Name)
	}
	m.roster, m.sidecars = roster.New(loaders, m.out), roster.NewSidecars(m.out, m.fence)
	if cfg.MostLoaders > 0 {
		m.roster.Resize(cfg.MostLoaders)
	}
	m.queues = m.roster.Queues()
	for i, q := range m.queues {
		if cfg.sealed != nil {
			q.Recall(func(o millrace.Ordinal) ([]millrace.Segment, error) { return cfg.sealed(i, o) })
		}
	}
	ranks := attempts.Config{Topology: cfg.Topology, Up: cfg.incarnation(), Rules: cfg.Rules, Reshape: m.reshape,
		Run: func() *facts.Run { return m.cfg.commonRun(s) }}
	if cfg.Reshape == nil {
		ranks.Reshape = nil
	}
	m.ranks = attempts.New(ranks, s, m.sidecars)
	m.reports = &reports{cfg: cfg, names: names, s: s}
	mixture := mix.Config{
		File:      cfg.Spec,
		Sources:   names,
		Cost:      cfg.Cost,
		Recosts:   cfg.Recost != nil,
		Calibrate: m.reports.calibrate,
	}
	m.mix = mix.New(mixture, s, m.out)
	m.reports.mix = m.mix
	m.planning = &planning{cfg: cfg, s: s, queues: m.queues, mix: m.mix, runway: runway{plan: newestPlan(s)}}
	m.quarantine = &quarantine{sources: cfg.Sources, s: s, queues: m.queues}
	m.masks = &masking{names: names, s: s, queues: m.queues, out: m.out}
	m.quarantine.restore()
	m.masks.restore()
	if e := cfg.Elastic; e != nil {
		outlook := m.mix.Outlook(func() *progress.State { return m.s.PlannerState(len(m.cfg.Sources)) })
		m.control = scale.NewControl(scale.New(e.Limits, outlook, e.Costs))
	}
	if err := m.restart(); err != nil {
		return nil, err
	}
	m.reposition()
	return m, nil
}

// restart sets the mixture, the planner and the reports to the newest attempt.
func (m *Machine) restart() error {
	if err := m.mix.Restore(); err != nil {
		return err
	}
	m.planning.reset()
	return m.reports.restart()
}

// reposition sets the queues to the state of the newest attempt.
func (m *Machine) reposition() {
	base := m.s.PlannerState(len(m.cfg.Sources))
	for i := range m.cfg.Sources {
		are := roster.Ordinals{Piece: m.cfg.Spec.Under(base).Sources[i].PieceTokens}
		if m.s.Base != nil {
			are.Eras = string(m.s.Base.ErasOf(i))
		}
		m.roster.Reposition(i, base.Floor(i), base.Sources[i].SeekPoint, are)
	}
}

// Actions returns the effects of the turn, in order, and forgets them.
func (m *Machine) Actions() []roster.Action {
	m.roster.Flush()
	return m.out.Take()
}

// Done reports whether every rank has consumed the whole stream.
func (m *Machine) Done() bool { return m.failed == nil && m.ranks.AreDone() }

// reshape makes the machine one of another topology. The caller replaces its ranks.
func (m *Machine) reshape(t millrace.Topology) error {
	next, err := m.cfg.with(t)
	if err != nil {
		return err
	}
	*m.cfg.Topology = next
	m.planning.reshaped = true
	m.figures.Keep(uint32(next.Ranks))
	return nil
}

// isIdle reports whether loaders do not read a further stream: no rank has asked for it in this life of the
// orchestrator, or it has failed.
func (m *Machine) isIdle() bool {
	_, asked := m.ranks.AreHere()
	return m.cfg.Further && (m.failed != nil || !asked)
}

// Failed returns why the run cannot continue, or nil.
func (m *Machine) Failed() error { return m.failed }

// fail ends the run: every rank hears why.
func (m *Machine) fail(err error) {
	if m.failed != nil {
		return
	}
	m.failed = err
	m.sidecars.Broadcast(failedOrder(err))
}

func failedOrder(err error) *proto.SidecarOrder {
	return &proto.SidecarOrder{Order: &proto.SidecarOrder_Failed{Failed: &proto.Fatal{Reason: err.Error()}}}
}

// waitingOrder lets a sidecar write the reason for waiting to its trainers' logs.
func waitingOrder(cause activity.Cause) *proto.SidecarOrder {
	waiting := &proto.Waiting{Text: cause.Text, Cause: wire.CauseToProto(cause)}
	return &proto.SidecarOrder{Order: &proto.SidecarOrder_Waiting{Waiting: waiting}}
}

func (m *Machine) fence() *proto.Fence {
	return &proto.Fence{Stream: string(m.cfg.Stream), Attempt: uint32(m.s.CurrentAttempt()), Term: m.s.Term}
}

// pinned reports whether every source's files are known.
func (m *Machine) pinned() bool {
	return len(m.s.Manifests) == len(m.cfg.Sources) && len(m.roster.Unpinned()) == 0
}

// commonRun returns the common part of all states of a run. Every source's files are known by then.
func (cfg *Config) commonRun(s *facts.State) *facts.Run {
	files := make([]facts.SourceFiles, len(cfg.Sources))
	for i := range cfg.Sources {
		name := cfg.Sources[i].Name
		files[i] = facts.FilesOf(name, s.Manifests[name])
	}
	begun := progress.NewOf(s.PlannerVersion, 0)
	identity, _ := cfg.Of(&begun, cfg.Identity)
	return facts.NewRun(cfg.Spec, identity, files)
}

// applyFact advances the state by one fact and publishes it.
func (m *Machine) applyFact(f facts.Fact) {
	m.s.Apply(f)
	m.planning.stale = true
	switch r := f.Record.GetFact().(type) {
	case *proto.Record_Saved:
		m.saves.apply()
	case *proto.Record_Pinned:
		m.roster.Pin(r.Pinned.Manifest)
		m.welcome()
	case *proto.Record_Assigned:
		m.roster.Apply(r.Assigned)
	case *proto.Record_Masked:
		m.masks.apply(r.Masked.Masks)
		m.sidecars.Broadcast(&proto.SidecarOrder{Order: &proto.SidecarOrder_Masked{Masked: r.Masked}})
	case *proto.Record_Mixed:
		m.mixed(r.Mixed)
	case *proto.Record_Opened:
		m.opened()
	case *proto.Record_Sealed:
		m.sealed(f.Plan)
	case *proto.Record_Acknowledged:
		m.ranks.Acknowledge(r.Acknowledged)
		for i := range m.queues {
			m.roster.Release(i, m.s.Base.Planner.Floor(i)) // no plan needs the documents below
		}
	case *proto.Record_Quarantined:
		m.quarantine.apply(r.Quarantined.Samples)
		for _, q := range r.Quarantined.Samples {
			m.out.Say("quarantined %s %s at byte %d: %s", q.Source, q.Id, q.Offset, q.Reason)
		}
	case *proto.Record_Ended:
		m.out.Say("the run ends after %d steps: %s", r.Ended.Steps, r.Ended.Reason)
		m.planning.take(nil)
		m.ranks.End()
		m.tellEnd()
	}
}

// mixed brings a change of the mixture into force.
func (m *Machine) mixed(c *proto.Mixed) {
	inForce, err := m.mix.Apply(c)
	if err != nil {
		m.fail(err) // it was tried before it was journaled
		return
	}
	if inForce {
		m.planning.reset()
		m.reports.apply(c)
	}
}

// opened starts the new attempt: the planner is at its state, every rank begins.
func (m *Machine) opened() {
	if err := m.restart(); err != nil {
		m.fail(err)
		return
	}
	m.reposition()
	m.mix.Open()
	if m.ranks.Open() {
		m.afterBegin()
	}
}

// sealed sends a sealed plan to every sidecar and asks ahead for the next.
func (m *Machine) sealed(p *proto.Plan) {
	m.planning.take(p)
	if m.ranks.Seal(p) {
		m.afterBegin()
	}
	m.reports.remember(p)
	by, _ := m.mix.Costs(p.Step)
	m.figures.Sealed(p, by.Linear, by.Quadratic)
	m.sendPlans()
	for i := range m.queues {
		cursor := m.s.Tail().Planner.Sources[i].Ordinal
		perStep := (cursor - m.queues[i].First()) / millrace.Ordinal(max(1, p.Step+1-m.s.Watermark))
		m.roster.Want(i, offers.Ahead(cursor, 2*perStep, len(m.queues)))
	}
}

// welcome sends every new sidecar the files, the directory, and then the sealed plans.
func (m *Machine) welcome() {
	if !m.pinned() {
		return
	}
	w := &proto.Welcome{Masks: m.s.Masks}
	for i := range m.cfg.Sources {
		w.Manifests = append(w.Manifests, wire.NamesOnly(m.s.Manifests[m.cfg.Sources[i].Name]))
	}
	m.sidecars.Welcome(w, m.roster.Directory())
	m.sendPlans()
	m.tellEnd()
}

// afterBegin sends the plans, and the end if it is known, to the hosts of ranks that have begun.
func (m *Machine) afterBegin() {
	m.sendPlans()
	m.tellEnd()
}

// sendPlans sends every sidecar its parts of the sealed plans that it does not have.
func (m *Machine) sendPlans() {
	if m.s.Attempt != nil {
		plan := func(step uint64) *proto.Plan { return m.s.Sealed[step].Plan }
		if err := m.sidecars.SendPlans(m.s.Attempt.Attempt, m.s.Watermark, m.s.Next, plan); err != nil {
			m.fail(err)
		}
	}
}

func (m *Machine) tellEnd() {
	if m.s.Ended != nil {
		m.sidecars.Broadcast(&proto.SidecarOrder{Order: &proto.SidecarOrder_Ended{Ended: m.s.Ended}})
	}
}
