package orchestrator

import (
	"fmt"
	"log/slog"
	"sort"
	"time"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/feedback"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
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
	Recost  func(planner.Cost) func(*planner.Selection) (*millrace.Plan, error)
	Cost    planner.Cost // of Place
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
	members  map[string]*member
	stripes  []*stripe   // by source and index
	of       [][]*stripe // the same, of each source
	byName   map[facts.Stripe]*stripe
	fenced   map[process]bool
	lost     map[string]time.Time // when a member was lost
	sidecars map[string]*sidecar
	ranks    []rank
	queues   offers.Queues
	selector *planner.Selector // continues after the last sealed step; nil where it must be made anew
	live     facts.Overrides   // what holds beside the mixture file in the newest attempt
	spec     *planner.Spec     // the mixture file's with live over it
	differ   *planner.Differ
	toMix    []*mixAsked // changes of the mixture, not yet journaled
	mixing   *mixAsked   // journaled next
	heard    heard
	wants    []millrace.Ordinal
	toPin    []*proto.Manifest // seen, not yet journaled
	toSave   *proto.Saved
	toMask   []*proto.Mask // as toPin
	joins    uint64        // counted
	called   uint64        // newest join that sidecars were asked about: who else is there
	midway   *join         // the attempt starts inside a step: ranks begin when its placement was compared
	pending  string        // what the next plan waits for
	told     string        // what the sidecars were told of it
	failed   error
	done     bool
	out      []Action

	began, now time.Time
	unsettled  bool   // who reads what may have to change
	moved      bool   // the directory has changed, and the sidecars were not told
	switches   uint64 // stripes that a standby took over
	protected  int64  // unix milliseconds since when every stripe has a standing standby; 0 where not
	alerts     []*proto.Alert
	since      map[string]time.Time // what the run lacks, by kind and key
	said       map[string]string    // of it, what people were told

	diskFree, diskTotal uint64 // of the journal, in bytes; 0 where not known
}

// sidecar is one connected sidecar.
type sidecar struct {
	name     string
	pid      int64
	born     int64 // of two processes of a name, the later one has taken the other's place
	session  Session
	welcomed bool
	sent     uint64 // plans below this step of the attempt were sent
	attempt  uint32
}

// rank is what is known of a trainer rank in this life.
type rank struct {
	join    *join // waiting to begin
	from    Session
	serving bool          // has begun in the open attempt
	away    bool          // its trainer left, and has not begun again since
	below   uint64        // first step it has not consumed
	present uint64        // newest join of another that it was known to be there after
	last    *proto.Commit // of the stream's last step, to be answered to `from` once it is durable
}

// join is a rank's declared start, resolved.
type join struct {
	msg        *proto.Join
	session    Session
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
	m := &Machine{cfg: cfg, s: s, members: map[string]*member{}, byName: map[facts.Stripe]*stripe{}, fenced: map[process]bool{}, lost: map[string]time.Time{},
		stripes: newStripes(cfg.Sources), unsettled: true, sidecars: map[string]*sidecar{}, ranks: make([]rank, cfg.Ranks), wants: make([]millrace.Ordinal, len(cfg.Sources))}
	m.of = make([][]*stripe, len(cfg.Sources))
	for _, src := range cfg.Sources {
		m.queues = append(m.queues, offers.NewQueue(src.Name, len(src.Loaders)))
	}
	for _, st := range m.stripes {
		m.of[st.source] = append(m.of[st.source], st)
		m.byName[facts.Stripe{Source: cfg.Sources[st.source].Name, Index: uint32(st.index)}] = st
	}
	for _, mask := range s.Masks {
		if st := m.stripe(mask.Source, 0); st != nil {
			m.queues[st.source].Planned(millrace.Ordinal(mask.Ordinal), mask.Tokens)
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

// Session is where a connected role hears from us. Sends are queued and never block; a lost role is reported by its handler.
type Session interface{ Send(msg any) }

// Action is an effect to carry out after the records of its turn are durable.
type Action struct {
	To     Session // and
	Msg    any     // a *proto.LoaderOrder or *proto.SidecarOrder
	Line   string  // or a line for people on standard error
	Fenced *Fenced // or a process that nobody listens to any more
}

// Fenced is a loader process that may live and must not: another has taken over what it held, and a fresh one is wanted in its slot.
type Fenced struct {
	Name string
	Pid  int64
}

func (m *Machine) send(to Session, msg any) { m.out = append(m.out, Action{To: to, Msg: msg}) }
func (m *Machine) say(format string, args ...any) {
	m.out = append(m.out, Action{Line: fmt.Sprintf(format, args...)})
}

// Actions hands over what is to be done, in order.
func (m *Machine) Actions() []Action {
	out := m.out
	m.out = nil
	return out
}

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
	m.broadcast(&proto.SidecarOrder{Order: &proto.SidecarOrder_Failed{Failed: &proto.Fatal{Reason: err.Error()}}})
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
	m.tellLoaders()
	m.tellAlerts()
	m.tellWaiting()
	return made, err
}

// pinned tells whether every source's files are known.
func (m *Machine) pinned() bool { return len(m.s.Manifests) == len(m.cfg.Sources) && len(m.toPin) == 0 }

// pin journals the manifests that were seen first.
func (m *Machine) pin() (made []facts.Fact) {
	for _, mf := range m.toPin {
		made = append(made, facts.Fact{Record: &proto.Record{Fact: &proto.Record_Pinned{Pinned: &proto.Pinned{Manifest: mf}}}})
	}
	m.toPin = nil
	return made
}

// Apply advances the state and publishes.
func (m *Machine) Apply(f facts.Fact) {
	m.s.Apply(f)
	switch r := f.Record.GetFact().(type) {
	case *proto.Record_Pinned:
		m.unsettled = true
		m.welcome()
	case *proto.Record_Assigned:
		m.assigned(r.Assigned)
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
			m.say("quarantined %s %s at byte %d: %s", q.Source, q.Id, q.Offset, q.Reason)
		}
	case *proto.Record_Ended:
		m.say("the run ends after %d steps: %s", r.Ended.Steps, r.Ended.Reason)
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

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
