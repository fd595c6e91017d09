package orchestrator

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner/progress"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// Joined observes a rank's declared start. It is answered at once where it is wrong or simply goes on; else when all have joined.
func (m *Machine) Joined(from roster.Session, msg *pb.Join) {
	if int(msg.Rank) >= len(m.ranks) {
		m.refuse(from, msg, fmt.Errorf("rank %d: this run has %d ranks", msg.Rank, len(m.ranks)))
		return
	}
	r := &m.ranks[msg.Rank]
	if msg.Start == "continue" {
		m.goOn(r, from, msg)
		return
	}
	m.joins++
	r.join, r.away = &join{msg: msg, session: from, number: m.joins}, r.away || r.serving
}

// goOn lets a rank whose sidecar died take up its own position in the open attempt.
func (m *Machine) goOn(r *rank, from roster.Session, msg *pb.Join) {
	if m.s.Attempt == nil || msg.Attempt != m.s.Attempt.Attempt || msg.Step < m.s.Watermark {
		m.refuse(from, msg, millrace.Errorf(millrace.ErrFenced, "rank %d stands at step %d of attempt %d, the run is at step %d of attempt %d: start the ranks again from a state or `latest`",
			msg.Rank, msg.Step, msg.Attempt, m.s.Watermark, m.s.CurrentAttempt()))
		return
	}
	r.serving, r.away, r.from, r.below, r.join = true, false, from, max(r.below, msg.Step), nil
	m.begin(from, msg, msg.Step, msg.Microbatch, nil)
	m.callRoll(from)
	m.sendPlans()
	m.tellEnd()
}

// Left observes that a rank's trainer is gone. What it declared and did not begin is forgotten.
func (m *Machine) Left(rank uint32) {
	if int(rank) < len(m.ranks) {
		m.ranks[rank].join, m.ranks[rank].away = nil, true
	}
}

func (m *Machine) refuse(to roster.Session, msg *pb.Join, err error) {
	m.sidecars.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Refusal{Refusal: &pb.Refusal{Rank: msg.Rank, Call: msg.Call, Reason: err.Error()}}})
}

// begin lets a rank begin; state is nil if it keeps its own.
func (m *Machine) begin(to roster.Session, msg *pb.Join, step uint64, microbatch uint32, state *facts.RunState) {
	b := &pb.Begin{Rank: msg.Rank, Call: msg.Call, Attempt: m.s.Attempt.Attempt, Step: step, Microbatch: microbatch}
	if state != nil {
		b.State = state.Encode()
	}
	m.sidecars.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Begin{Begin: b}})
}

// open opens an attempt, or goes on with the newest one, once every rank has said where it starts.
func (m *Machine) open() ([]facts.Fact, error) {
	if !m.pinned() || m.midway != nil {
		return nil, nil
	}
	m.resolve()
	if m.rejoin() {
		return nil, nil
	}
	for i := range m.ranks {
		if m.ranks[i].join == nil {
			return nil, nil
		}
	}
	first := m.ranks[0].join
	for i := range m.ranks {
		if j := m.ranks[i].join; j.step != first.step || j.microbatch != first.microbatch || j.forgets != first.forgets {
			m.refuseAll(fmt.Errorf("ranks start at different places: rank 0 at step %d, microbatch %d, rank %d at step %d, microbatch %d: load the same checkpoint on every rank",
				first.step, first.microbatch, i, j.step, j.microbatch))
			return nil, nil
		}
	}
	if m.sameAttempt(first) {
		m.beginAll()
		return nil, nil
	}
	opened := &pb.Opened{Attempt: uint32(m.s.CurrentAttempt()) + 1, Step: first.step, State: first.state.Encode(), Placing: m.cfg.Placing, Up: m.cfg.Up, Forgets: first.forgets}
	return []facts.Fact{{Record: &pb.Record{Fact: &pb.Record_Opened{Opened: opened}}, At: first.state}}, nil
}

// resolve turns declared starts into steps; a wrong one is refused. `latest` is where the run stands when it goes on: while a rank that
// came back waits, others may still move it.
func (m *Machine) resolve() {
	for i := range m.ranks {
		j := m.ranks[i].join
		if j == nil || j.kind != "" && j.kind != "latest" {
			continue
		}
		if err := m.resolveOne(&m.ranks[i], j); err != nil {
			m.refuse(j.session, j.msg, err)
			m.ranks[i].join = nil
		}
	}
}

func (m *Machine) resolveOne(r *rank, j *join) error {
	j.kind = j.msg.Start
	if j.kind == "" {
		if m.history() && !m.unheard(r) {
			return millrace.Errorf(millrace.ErrInvalid, "this run has history (attempt %d, step %d): say where to start: load_state_dict(state), or connect(start=\"latest\") or connect(start=\"fresh\")",
				m.s.CurrentAttempt(), m.s.Watermark)
		}
		j.kind = "fresh"
	}
	if j.kind == "latest" && m.s.Attempt == nil {
		j.kind = "fresh"
	}
	switch j.kind {
	case "fresh":
		return m.resolveAt(j, m.fresh())
	case "latest":
		return m.resolveAt(j, m.s.Base)
	case "state":
		return m.resolveState(j)
	default:
		return millrace.Errorf(millrace.ErrInvalid, "start %q: want fresh or latest", j.kind)
	}
}

// resolveAt starts at a state of this run, with the changes of the mixture that stay in force from there on.
func (m *Machine) resolveAt(j *join, at *facts.RunState) (err error) {
	if j.forgets {
		j.state = at.WithOverrides(at.Overrides)
	} else if j.state, err = m.s.Forward(at); err != nil {
		return err
	}
	j.step = j.state.NextStep()
	return nil
}

// fresh is the state before the first step.
func (m *Machine) fresh() *facts.RunState {
	return facts.NewRunState(m.run(), 0, progress.New(len(m.cfg.Sources)), facts.Overrides{})
}

// history tells whether an attempt was opened under another `up`, or anybody has consumed anything. An attempt that was only opened under
// this one is none: the orchestrator that opened it may have been lost before any rank heard of it, and the ranks say again what they said.
func (m *Machine) history() bool {
	if m.s.Attempt == nil {
		return false
	}
	if m.s.Attempt.Up != m.cfg.Up {
		return true
	}
	for i := range m.ranks {
		if m.ranks[i].below > 0 {
			return true
		}
	}
	return m.s.Watermark > 0
}

// unheard tells that a rank which says nothing of where it starts has yet to begin the attempt that was opened from nothing under this
// `up`, in which others have gone ahead: what they consumed is no history to it.
func (m *Machine) unheard(r *rank) bool {
	return m.s.Attempt != nil && m.s.Attempt.Up == m.cfg.Up && m.missed(r, &join{state: m.fresh()})
}

func (m *Machine) resolveState(j *join) error {
	saved, err := facts.ReadSaved(j.msg.State)
	if err != nil {
		return err
	}
	at, err := facts.Migrate(saved, m.run(), m.cfg.Rules, j.msg.Override)
	if err != nil {
		return err
	}
	j.microbatch, j.placement = saved.Microbatch, saved.Placement
	j.forgets = slices.Contains(j.msg.Override, overrideChanges)
	return m.resolveAt(j, at)
}

// overrideChanges, as an override of a state, drops the changes of the mixture that were journaled for steps from the state's on.
const overrideChanges = "mixture.changes"

// rejoin lets single ranks that declare just where they stand go on without the others; true if a turn was made. Of several that had
// left all go on or none: one that cannot needs everybody to start again with it. That the others have not left is not known before their
// hosts have said so: what a host says of ranks that left may take longer than another's ranks take to come back.
func (m *Machine) rejoin() bool {
	if m.placingChanged() || m.allJoined() {
		return false
	}
	newest := uint64(0)
	for i := range m.ranks {
		r := &m.ranks[i]
		if m.stands(r) {
			newest = max(newest, r.join.number)
		} else if r.away && !m.through(r) {
			return false
		}
	}
	if newest == 0 || !m.others(newest) {
		return false
	}
	any := false
	for i := range m.ranks {
		r := &m.ranks[i]
		j := r.join
		if !m.stands(r) {
			continue
		}
		r.join, r.serving, r.away, r.from, r.below, any = nil, true, false, j.session, max(r.below, j.step), true
		m.begin(j.session, j.msg, j.step, 0, m.s.At(j.step))
		m.sendPlans()
		m.tellEnd()
	}
	return any
}

// others tells whether every rank that does not stand was there after a join. Where that is not known the hosts are asked.
func (m *Machine) others(number uint64) bool {
	for i := range m.ranks {
		if r := &m.ranks[i]; m.stands(r) || m.through(r) || m.s.Through[uint32(i)] || r.present >= number {
			continue
		}
		if m.called < number {
			m.called = number
			m.sidecars.Broadcast(m.rollCall())
		}
		return false
	}
	return true
}

// callRoll asks a host which of its ranks are there, if a join waits for that.
func (m *Machine) callRoll(to roster.Session) {
	if m.called > 0 && m.anyJoin() != nil {
		m.sidecars.Send(to, m.rollCall())
	}
}

func (m *Machine) rollCall() *pb.SidecarOrder {
	return &pb.SidecarOrder{Order: &pb.SidecarOrder_RollCall{RollCall: &pb.RollCall{Call: m.called}}}
}

// Present observes which ranks of a host are there. It comes after all that the host had to say before it was asked.
func (m *Machine) Present(msg *pb.Present) {
	for _, rank := range msg.Ranks {
		if int(rank) < len(m.ranks) {
			m.ranks[rank].present = max(m.ranks[rank].present, msg.Call)
		}
	}
}

// stands tells that a rank declares just where it stands in the open attempt.
func (m *Machine) stands(r *rank) bool {
	j := r.join
	if j == nil || j.microbatch != 0 {
		return false
	}
	return r.serving && j.kind != "fresh" && j.step == r.below || m.ahead(r, j) || m.missed(r, j)
}

// ahead tells that a rank goes on from a state of the open attempt that proves it has taken more than it said: it died between the two.
func (m *Machine) ahead(r *rank, j *join) bool {
	return r.serving && j.kind == "state" && j.step > r.below && j.step <= m.s.Next && j.state.IsAlike(m.s.At(j.step))
}

// through tells that a rank has consumed the whole stream: it will not come back.
func (m *Machine) through(r *rank) bool { return m.s.Ended != nil && r.below >= m.s.Ended.Steps }

// missed tells that a rank declares the place of the slowest, where others are under way and this orchestrator knows of nothing that the
// rank has taken beyond it: its answer was lost with an orchestrator or on the way, or its trainer died and came back while there was none.
func (m *Machine) missed(r *rank, j *join) bool {
	if m.s.Attempt == nil || r.below != m.s.Watermark || !j.state.IsAlike(m.s.Base) {
		return false
	}
	for i := range m.ranks {
		if other := &m.ranks[i]; other != r && other.serving && !other.away {
			return true
		}
	}
	return false
}

func (m *Machine) allJoined() bool {
	for i := range m.ranks {
		if m.ranks[i].join == nil {
			return false
		}
	}
	return true
}

func (m *Machine) placingChanged() bool { return !proto.Equal(m.s.Attempt.GetPlacing(), m.cfg.Placing) }

// sameAttempt: going on where all stand, with nothing consumed twice and nothing placed otherwise, needs no new attempt.
func (m *Machine) sameAttempt(j *join) bool {
	if m.s.Attempt == nil || m.placingChanged() || j.step != m.s.Watermark || j.microbatch != 0 || j.kind == "fresh" || j.forgets {
		return false
	}
	// With all that is known by now of changes of the mixture in this attempt.
	if string(j.state.Encode()) != string(m.s.Base.WithOverrides(m.live).Encode()) {
		return false
	}
	for i := range m.ranks {
		if m.ranks[i].below > j.step {
			return false
		}
	}
	return true
}

func (m *Machine) refuseAll(err error) {
	for i := range m.ranks {
		if j := m.ranks[i].join; j != nil {
			m.refuse(j.session, j.msg, err)
			m.ranks[i].join = nil
		}
	}
}

// opened starts the new attempt: the planner stands at its state, every rank begins.
func (m *Machine) opened() {
	if err := m.relive(); err != nil {
		m.fail(err)
		return
	}
	m.reposition()
	m.tellMixed()
	for i := range m.ranks {
		m.ranks[i].serving, m.ranks[i].below, m.ranks[i].last = false, m.s.Watermark, nil
	}
	if j := m.anyJoin(); j != nil && j.microbatch > 0 {
		m.midway = j
		return
	}
	m.beginAll()
}

func (m *Machine) anyJoin() *join {
	for i := range m.ranks {
		if m.ranks[i].join != nil {
			return m.ranks[i].join
		}
	}
	return nil
}

// beginAll answers every waiting rank. Of an attempt that starts inside a step it waits for the step's plan: see publish.
func (m *Machine) beginAll() {
	for i := range m.ranks {
		r := &m.ranks[i]
		if j := r.join; j != nil {
			r.serving, r.away, r.from, r.below, r.join = true, false, j.session, j.step, nil
			m.begin(j.session, j.msg, j.step, j.microbatch, m.s.Base)
		}
	}
	m.sendPlans()
	m.tellEnd()
}

// midStep compares the placement of the first sealed step with the one that a mid-step state was saved under.
func (m *Machine) midStep(p *pb.Plan) {
	j := m.midway
	if j == nil || p.Step != j.step {
		return
	}
	m.midway = nil
	refuse := func(format string, args ...any) {
		m.refuseAll(millrace.Errorf(millrace.ErrMismatch, "the state was saved inside step %d, after %d of its microbatches, "+format,
			append([]any{j.step, j.microbatch}, args...)...))
	}
	switch {
	case fmt.Sprintf("%x", p.Placement) != j.placement:
		refuse("under another placement (ranks, micro_batch_size, balance or layout differ): resume with the same, or from a state of a step's end")
	case j.microbatch >= p.Microbatches:
		refuse("and it has %d: pass what state_dict() returned, unchanged", p.Microbatches)
	default:
		m.beginAll()
	}
}

// noMidStep refuses a start inside a step that the run does not come to.
func (m *Machine) noMidStep() {
	if j := m.midway; j != nil {
		m.midway = nil
		m.refuseAll(millrace.Errorf(millrace.ErrMismatch, "the state was saved inside step %d, and the run ends before it: raise `stop`, or start from a state of a step's end", j.step))
	}
}
