package orchestrator

import (
	"log/slog"
	"slices"
	"sort"
	"time"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/feedback"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// Source is what the orchestrator knows of a source before it is opened.
type Source struct {
	Name    string
	Loaders []string // who serves each stripe
	// Allowed is how many quarantined records the budget takes: total records where they are counted, else those seen so far.
	Allowed func(counted bool, records uint64) uint64
}

// Config is what a run is, to the orchestrator.
type Config struct {
	Stream millrace.Stream
	Spec   *planner.Spec
	Place  func(*planner.Selection) (*millrace.Plan, error)
	// Recost is Place with other coefficients of cost.
	Recost  func(cost.Cost) func(*planner.Selection) (*millrace.Plan, error)
	Cost    cost.Cost // of Place
	Placing *proto.Placing
	// Adaptive makes weights of reported losses; nil: nothing does. Refit fits costs to reported times every so many steps; 0: only when asked to.
	Adaptive    *feedback.Settings
	Refit       uint64
	Ranks       int      // trainer ranks, along all axes
	Sources     []Source // sorted by name, as Spec.Sources
	Identity    []byte   // canonical JSON
	facts.Rules          // of migrating a saved state to this run
	// Compare names the file that changed between a pinned manifest and what a loader sees now.
	Compare func(pinned, now *millrace.Manifest) error
	Shadows int // how many shadows there are where nothing is wrong
	// Inverse finds samples for the ledger; where it is nil they are looked up in the plans that are kept.
	Inverse ledger.Inverse
	Runway  int    // steps planned ahead of the slowest rank
	By      string // program version
	Up      string // names this `up`; all orchestrators that it starts have the same
	Log     *slog.Logger
}

// Machine is the orchestrator without its goroutine, sockets and disk: State and what was observed in this life. Not safe for
// concurrent use: the loop owns it.
type Machine struct {
	cfg      Config
	s        *facts.State
	roster   *roster.Roster
	sidecars *roster.Sidecars
	ranks    []rank
	queues   offers.Queues     // the roster's
	selector *planner.Selector // continues after the last sealed step; nil where it must be made anew
	live     facts.Overrides   // what holds beside the mixture file in the newest attempt
	spec     *planner.Spec     // the mixture file's with live over it
	differ   *progress.Differ
	toMix    []*mixAsked // changes of the mixture, not yet journaled
	mixing   *mixAsked   // journaled next
	heard    heard
	toSave   *proto.Saved  // not yet journaled
	toMask   []*proto.Mask // not yet journaled
	joins    uint64        // counted
	called   uint64        // newest join that sidecars were asked about: who else is there
	midway   *join         // the attempt starts inside a step: ranks begin when its placement was compared
	pending  string        // what the next plan waits for
	told     string        // what the sidecars were told of it
	failed   error
	done     bool
	out      *roster.Actions
	now      time.Time
	disk     disk
	alerts   alerts
	warned   bool // of sources that are not read in the order asked for
}

// rank is what is known of a trainer rank in this life.
type rank struct {
	join    *join // waiting to begin
	from    roster.Session
	serving bool          // has begun in the open attempt
	away    bool          // its trainer left, and has not begun again since
	below   uint64        // first step it has not consumed
	present uint64        // newest join of another that it was known to be there after
	last    *proto.Commit // of the stream's last step, to be answered to `from` once it is durable
}

// join is a rank's declared start, resolved.
type join struct {
	msg        *proto.Join
	session    roster.Session
	kind       string
	step       uint64
	microbatch uint32
	state      *facts.RunState // to start from
	placement  string          // of a mid-step state
	forgets    bool            // what was journaled of the mixture for steps from there on is dropped
	number     uint64          // of the join, counted from 1
}

// NewMachine returns the machine of a restored state. Nothing happens before the first event.
func NewMachine(cfg Config, s *facts.State) (*Machine, error) {
	m := &Machine{cfg: cfg, s: s, ranks: make([]rank, cfg.Ranks), out: &roster.Actions{}}
	loaders := roster.Config{Up: cfg.Up, Program: cfg.By, Compare: cfg.Compare, Fence: m.fence}
	for _, src := range cfg.Sources {
		loaders.Sources = append(loaders.Sources, roster.Source{Name: src.Name, Loaders: src.Loaders})
	}
	m.roster, m.sidecars = roster.New(loaders, m.out), roster.NewSidecars(m.out, m.fence)
	m.queues = m.roster.Queues()
	for _, mask := range s.Masks {
		if i := m.sourceNamed(mask.Source); i >= 0 {
			m.queues[i].Planned(millrace.Ordinal(mask.Ordinal), mask.Tokens)
		}
	}
	for i := range m.ranks {
		m.ranks[i].below = s.Watermark
		if s.Through[uint32(i)] && s.Ended != nil {
			m.ranks[i].below = s.Ended.Steps
		}
	}
	if err := m.relive(); err != nil {
		return nil, err
	}
	m.reposition()
	m.redrawn()
	return m, nil
}

// Actions returns the effects of the turn, in order, and forgets them.
func (m *Machine) Actions() []roster.Action { return m.out.Take() }

// Done tells that every rank has consumed the whole stream; Failed why the run cannot go on.
func (m *Machine) Done() bool { return m.done }

// Failed returns why the run cannot go on, or nil.
func (m *Machine) Failed() error { return m.failed }

// fail ends the run: every rank hears why.
func (m *Machine) fail(err error) {
	if m.failed != nil {
		return
	}
	m.failed = err
	m.sidecars.Broadcast(&proto.SidecarOrder{Order: &proto.SidecarOrder_Failed{Failed: &proto.Fatal{Reason: err.Error()}}})
}

func (m *Machine) fence() *proto.Fence {
	return &proto.Fence{Stream: string(m.cfg.Stream), Attempt: uint32(m.s.CurrentAttempt()), Term: m.s.Term}
}

// Decide returns the next facts to journal, or none when there is nothing to do. It does not change the state.
func (m *Machine) Decide() ([]facts.Fact, error) {
	if m.failed != nil || m.done {
		return nil, nil
	}
	if save := m.toSave; save != nil {
		m.toSave = nil
		return []facts.Fact{{Record: &proto.Record{Fact: &proto.Record_Saved{Saved: save}}}}, nil
	}
	if made, err := m.mask(); made != nil || err != nil {
		return made, err
	}
	if made := m.mix(); made != nil {
		return made, nil
	}
	if made, err := m.adapt(); made != nil || err != nil {
		return made, err
	}
	if made, err := m.open(); made != nil || err != nil {
		return made, err
	}
	if made := m.acknowledge(); made != nil || m.done {
		return made, nil
	}
	if made := m.pin(); made != nil {
		return made, nil
	}
	if made := m.assign(); made != nil {
		return made, nil
	}
	made, err := m.plan()
	if m.roster.HasMoved() {
		m.sidecars.Broadcast(&proto.SidecarOrder{Order: &proto.SidecarOrder_Loaders{Loaders: m.roster.TakeDirectory()}})
	}
	m.tellAlerts()
	m.warnShuffle()
	m.tellWaiting()
	return made, err
}

// pinned tells whether every source's files are known.
func (m *Machine) pinned() bool {
	return len(m.s.Manifests) == len(m.cfg.Sources) && len(m.roster.Unpinned()) == 0
}

// pin journals the manifests that were seen first.
func (m *Machine) pin() (made []facts.Fact) {
	for _, mf := range m.roster.Unpinned() {
		made = append(made, facts.Fact{Record: &proto.Record{Fact: &proto.Record_Pinned{Pinned: &proto.Pinned{Manifest: mf}}}})
	}
	return made
}

// Apply advances the state and publishes.
func (m *Machine) Apply(f facts.Fact) {
	m.s.Apply(f)
	switch r := f.Record.GetFact().(type) {
	case *proto.Record_Pinned:
		m.roster.Pin(r.Pinned.Manifest)
		m.welcome()
	case *proto.Record_Assigned:
		m.roster.Apply(r.Assigned)
	case *proto.Record_Masked:
		m.masked(r.Masked.Masks)
	case *proto.Record_Mixed:
		m.mixed(r.Mixed)
	case *proto.Record_Opened:
		m.opened()
	case *proto.Record_Sealed:
		m.publish(f.Plan)
	case *proto.Record_Acknowledged:
		for _, i := range r.Acknowledged.Through {
			if c := m.ranks[i].last; c != nil {
				m.ranks[i].last = nil
				m.answerCommit(m.ranks[i].from, c)
			}
		}
		m.released()
	case *proto.Record_Quarantined:
		for _, q := range r.Quarantined.Samples {
			m.out.Say("quarantined %s %s at byte %d: %s", q.Source, q.Id, q.Offset, q.Reason)
		}
	case *proto.Record_Ended:
		m.out.Say("the run ends after %d steps: %s", r.Ended.Steps, r.Ended.Reason)
		m.noMidStep()
		m.tellEnd()
	}
}

// acknowledge moves the watermark to the slowest rank.
func (m *Machine) acknowledge() []facts.Fact {
	if m.s.Attempt == nil {
		return nil
	}
	below, all, here := ^uint64(0), true, false
	for i := range m.ranks {
		below, all = min(below, m.ranks[i].below), all && (m.ranks[i].serving || m.s.Through[uint32(i)])
		here = here || m.ranks[i].serving
	}
	if !all || below > m.s.Next {
		below = m.s.Watermark
	}
	through := m.newlyThrough(m.s.Ended)
	if below > m.s.Watermark || len(through) > 0 {
		return []facts.Fact{acknowledged(m.s.Attempt.Attempt, max(below, m.s.Watermark), through)}
	}
	// A run that was complete before this `up`, or whose end nobody has come to, waits for ranks that say what they want of it.
	m.done = (here || m.s.Attempt.Up == m.cfg.Up && len(m.s.Through) > 0) && m.s.Ended != nil && m.s.Watermark >= m.s.Ended.Steps
	return nil
}

func acknowledged(attempt uint32, below uint64, through []uint32) facts.Fact {
	return facts.Fact{Record: &proto.Record{Fact: &proto.Record_Acknowledged{Acknowledged: &proto.Acknowledged{Attempt: attempt, Below: below, Through: through}}}}
}

// newlyThrough lists the ranks that have consumed a stream that ends so, where that was not journaled yet.
func (m *Machine) newlyThrough(end *proto.Ended) (out []uint32) {
	for i := range m.ranks {
		if end != nil && m.ranks[i].serving && m.ranks[i].below >= end.Steps && !m.s.Through[uint32(i)] {
			out = append(out, uint32(i))
		}
	}
	return out
}

// run is the common part of all states of this run. Every source's files are known by then.
func (m *Machine) run() *facts.Run {
	files := make([]facts.SourceFiles, len(m.cfg.Sources))
	for i := range m.cfg.Sources {
		name := m.cfg.Sources[i].Name
		files[i] = facts.FilesOf(name, m.s.Manifests[name])
	}
	return facts.NewRun(m.cfg.Spec, m.cfg.Identity, files)
}

// assign journals who reads which stripe.
func (m *Machine) assign() (made []facts.Fact) {
	j := roster.Journal{Term: m.s.AssignTerm, Next: m.s.Next, Manifests: m.s.Manifests,
		Holder: func(source string, stripe uint32) *proto.Assigned {
			return m.s.Holders[facts.Stripe{Source: source, Index: stripe}]
		}}
	d := m.roster.Decide(j)
	for len(d.Assigned) == 0 && !d.IsEmpty() {
		m.roster.Settle(d)
		d = m.roster.Decide(j)
	}
	for _, a := range d.Assigned {
		made = append(made, facts.Fact{Record: &proto.Record{Fact: &proto.Record_Assigned{Assigned: a}}})
	}
	return made
}

// reposition makes the queues stand at the state of a newly opened attempt.
func (m *Machine) reposition() {
	base := m.s.PlannerState(len(m.cfg.Sources))
	for i := range m.cfg.Sources {
		m.roster.Reposition(i, base.Floor(i), base.Sources[i].SeekPoint)
	}
}

// sourceNamed returns the index of a source, -1 for none of that name.
func (m *Machine) sourceNamed(name string) int {
	return slices.IndexFunc(m.cfg.Sources, func(s Source) bool { return s.Name == name })
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
