package orchestrator

import (
	"fmt"
	"strings"
	"time"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/ledger"
	"millrace/orchestrator/mix"
	"millrace/orchestrator/offers"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// planning draws the next step and seals it. The drawn documents follow from the journal and the offers alone.
type planning struct {
	cfg      Config
	s        *facts.State // read only
	queues   offers.Queues
	mix      *mix.Mixture
	selector *planner.Selector // continues after the last sealed step; nil if it must be made anew
	differ   *progress.Differ
	drawn    *drawn // the next step, complete and not yet journaled
	runway   runway
	stale    bool     // offers or the state have changed since documents were drawn
	pending  string   // why the next plan waits; empty if it does not
	lacks    *missing // the offer that it waits for; nil: none
	reshaped bool     // the ranks have changed the topology in this life of the orchestrator
}

// drawn is the next step before it is placed, or the end of the run, or its failure.
type drawn struct {
	selection planner.Selection
	delta     progress.Delta
	ended     string // why no step follows; empty if one does
	failed    error  // why the step cannot be planned; nil if it can
}

// missing is the ordinal of a source that the next plan waits for.
type missing struct {
	source  int
	ordinal millrace.Ordinal
}

// reset drops everything that was drawn ahead: the mixture or the attempt has changed.
func (p *planning) reset() {
	p.differ, p.selector, p.drawn, p.stale = planner.NewDiffer(p.mix.Spec()), nil, nil, true
}

// take drops the drawn step, which is durable now. plan is nil for the end of the run.
func (p *planning) take(plan *pb.Plan) {
	p.drawn = nil
	if plan != nil {
		p.runway.plan = pbuf.Size(plan)
	}
}

// hasRoom reports whether the runway has room for another step. fastest is the first step that no rank has consumed.
func (p *planning) hasRoom(fastest uint64) bool {
	if p.s.Attempt == nil || p.s.Ended != nil || p.isHeld() {
		return false
	}
	least := uint64(p.cfg.Runway)
	steps := max(least, p.runway.steps(p.s, p.cfg.Ahead))
	if p.runway.isRecent(p.cfg.Ahead) {
		lead := max(fastest, p.s.Watermark) - p.s.Watermark
		steps = max(steps, min(lead+least, p.runway.most(p.cfg.Ahead)))
	}
	return p.s.Next < p.s.Watermark+steps
}

// isHeld reports whether no step may be planned: the next attempt has another topology, and is not open yet.
func (p *planning) isHeld() bool {
	return p.reshaped && !pbuf.Equal(p.s.Attempt.GetPlacing(), p.cfg.Placing)
}

// runway follows the pace of the ranks. It decides how early a step is planned, and nothing about its content.
//
// If the slowest rank goes away before the pace is known, or under another orchestrator, the other ranks set the pace:
// steps are planned for them until the time of the runway is over.
type runway struct {
	attempt uint32
	first   uint64    // watermark of the attempt's first look; its first move may be of steps consumed before
	marks   []mark    // a second or more apart, the oldest first, from the first move on
	plan    int       // bytes of the newest plan; 0: there is none
	moved   mark      // the time at which the watermark was first seen at its place
	now     time.Time // of the last look
}

// newestPlan returns the bytes of the newest plan, 0 if every planned step is consumed. A new leader would otherwise
// learn them from its first plan, which it makes only when the ranks have used up the runway.
func newestPlan(s *facts.State) int {
	if sealed, found := s.Sealed[s.Next-1]; found {
		return pbuf.Size(sealed.Plan)
	}
	return 0
}

// mark is the watermark at a time.
type mark struct {
	at        time.Time
	watermark uint64
}

// The pace is measured over paceTime, once it is known for leastPaceTime.
const (
	paceTime      = 30 * time.Second
	leastPaceTime = 5 * time.Second
)

// observe observes the watermark at a time.
func (r *runway) observe(now time.Time, s *facts.State) {
	r.now = now
	if attempt := s.Attempt.GetAttempt(); attempt != r.attempt {
		r.attempt, r.marks, r.moved, r.first = attempt, nil, mark{}, s.Watermark
	}
	if r.moved.at.IsZero() || r.moved.watermark != s.Watermark {
		r.moved = mark{now, s.Watermark}
	}
	if n := len(r.marks); n > 0 && now.Sub(r.marks[n-1].at) < time.Second || s.Watermark == r.first {
		return
	}
	for len(r.marks) > 0 && now.Sub(r.marks[0].at) > paceTime {
		r.marks = r.marks[1:]
	}
	r.marks = append(r.marks, mark{now, s.Watermark})
}

// steps returns the steps that the ranks consume in ahead.Time, within its other bounds.
func (r *runway) steps(s *facts.State, ahead Ahead) uint64 {
	if len(r.marks) == 0 || r.plan == 0 || r.attempt != s.Attempt.GetAttempt() {
		return 0
	}
	first, last := r.marks[0], r.marks[len(r.marks)-1]
	span := last.at.Sub(first.at)
	if span < leastPaceTime {
		return 0
	}
	steps := (last.watermark - first.watermark) * uint64(ahead.Time.Milliseconds()) / uint64(span.Milliseconds())
	return min(steps, r.most(ahead))
}

// most returns the other bounds of ahead.
func (r *runway) most(ahead Ahead) uint64 {
	return min(uint64(ahead.Steps), uint64(ahead.Bytes/max(1, r.plan)))
}

// isRecent reports whether the watermark has moved within ahead.Time.
func (r *runway) isRecent(ahead Ahead) bool { return r.now.Sub(r.moved.at) < ahead.Time }

// resume sets the selector to the step after the last sealed one.
func (p *planning) resume() (err error) {
	if p.selector == nil {
		p.selector, err = planner.NewSelector(p.mix.Spec(), p.s.Tail().Planner)
	}
	return err
}

// draw draws documents for the next step as far as offers are there. It returns the first missing offer, nil if the
// step is complete.
func (p *planning) draw() (*missing, error) {
	p.stale = false
	if err := p.resume(); err != nil {
		return nil, err
	}
	selection, outcome, err := p.selector.Advance(p.queues)
	if err != nil {
		return nil, p.queues.Explain(err)
	}
	switch outcome.Kind {
	case planner.Waiting:
		p.pending = fmt.Sprintf("step %d waits for samples of source %s", p.s.Next, p.cfg.Sources[outcome.Source].Name)
		p.lacks = &missing{outcome.Source, outcome.Ordinal}
		return p.lacks, nil
	case planner.Finished:
		p.drawn = &drawn{ended: ended(outcome)}
	default:
		delta, err := p.differ.Diff(p.s.Tail().Planner, selection.After, selection.Legs...)
		if err != nil {
			return nil, err
		}
		p.drawn = &drawn{selection: selection, delta: delta}
	}
	p.pending, p.lacks = "", nil
	return nil, nil
}

// stop puts a failure in the place of the next step.
func (p *planning) stop(why error) { p.drawn, p.pending, p.lacks = &drawn{failed: why}, "", nil }

// ended says in words why no step follows, and which sources were left unread.
func ended(o planner.Outcome) string {
	if len(o.Unread) == 0 {
		return string(o.Reason)
	}
	return fmt.Sprintf("%s; not read to their end: %s", o.Reason, strings.Join(o.Unread, ", "))
}

// place distributes a step to ranks, by the cost model in force.
func (p *planning) place(sel *planner.Selection) (*millrace.Plan, error) {
	if cost, changed := p.mix.Costs(uint64(sel.Step)); changed && p.cfg.Recost != nil {
		return p.cfg.Recost(cost)(sel)
	}
	return p.cfg.Place(sel)
}

// seal places a drawn step and returns its fact. It changes nothing.
func (p *planning) seal(next *drawn) ([]facts.Fact, error) {
	sel := &next.selection
	plan, err := p.place(sel)
	if err != nil {
		return nil, fmt.Errorf("place step %d: %w", sel.Step, err)
	}
	plan.Stream, plan.Attempt, plan.Term = p.cfg.Stream, p.s.CurrentAttempt(), millrace.Term(p.s.Term)
	after := facts.NewRunState(p.s.Base.Run, p.s.Attempt.Attempt, sel.After, p.mix.Overrides())
	msg := wire.PlanToProto(plan, after.Encode())
	msg.Delta = next.delta
	chain := ledger.Chain(p.s.Chain, p.s.Attempt.Attempt, msg.Content, msg.Placement, msg.Delta)
	sealed := &pb.Sealed{
		Attempt: p.s.Attempt.Attempt,
		Step:    uint64(sel.Step),
		Content: msg.Content,
		Delta:   msg.Delta,
		Chain:   chain,
	}
	if p.s.FirstUp == "" {
		sealed.Up = p.cfg.incarnation()
	}
	return []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Sealed{Sealed: sealed}}, Plan: msg, At: after}}, nil
}
