package attempts

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// Config describes the ranks of a run and the rules for their starts.
type Config struct {
	*Topology             // of the run, now; shared with the parts of the orchestrator that place steps
	Up        string      // names this `up`; all orchestrators that it starts have the same
	Rules     facts.Rules // of migrating a saved state to this run
	// Reshape replaces the value of Topology by that of another arrangement of ranks; an error says why the run cannot
	// have it. nil: the topology is fixed.
	Reshape func(millrace.Topology) error
	// Run returns the common part of all states of this run. It is called when the files of every source are known.
	Run func() *facts.Run
}

// Ranks are the trainer ranks of a run. Not safe for concurrent use.
type Ranks struct {
	cfg      Config
	s        *facts.State // read only
	out      *roster.Sidecars
	asked    bool   // a rank has been here
	joins    uint64 // counted
	call     rollCall
	services services // of the hosts that are connected
	lineup
}

// lineup is what ends with the topology. All else of Ranks outlives a change of it.
type lineup struct {
	ranks  []rank
	said   []string    // the lines about starts that people know
	midway *join       // the attempt starts inside a step: ranks begin when its placement was compared
	others []otherRank // ranks of another topology, in the order of their joins
}

// rank is a trainer rank as this life of the orchestrator knows it.
type rank struct {
	join    *join // waiting to begin
	from    roster.Session
	serving bool       // has begun in the open attempt
	away    bool       // its trainer left, and has not begun again since
	here    bool       // its trainer is connected, as far as this life of the orchestrator heard
	below   uint64     // first step it has not consumed
	present uint64     // newest join of another that it was known to be there after
	last    *pb.Commit // of the stream's last step, to be answered to `from` once it is durable
}

// join is a rank's declared start.
type join struct {
	msg     *pb.Join
	session roster.Session
	number  uint64 // of the join, counted from 1
	start   start
}

// New returns the ranks of a restored state, none of them connected. Their answers go to out.
func New(cfg Config, s *facts.State, out *roster.Sidecars) *Ranks {
	r := &Ranks{cfg: cfg, s: s, out: out, call: newRollCall(), services: services{}}
	r.lineUp()
	return r
}

// lineUp begins with the ranks of the topology, none of them connected.
func (r *Ranks) lineUp() {
	r.lineup = lineup{ranks: make([]rank, r.cfg.Ranks)}
	for i := range r.ranks {
		r.ranks[i].below = r.s.Watermark
		if r.wasThrough(i) && r.s.Ended != nil {
			r.ranks[i].below = r.s.Ended.Steps
		}
	}
}

// Join observes a rank's declared start. It is answered when all ranks have joined. A rank that only lost its sidecar
// continues at once: began is true if it has begun.
//
// A host may serve another topology than the run has. Its ranks wait until all ranks of the run have left. Then the run
// takes that topology.
func (r *Ranks) Join(from roster.Session, msg *pb.Join) (began bool) {
	if r.isOfAnother(msg) {
		r.queueOther(from, msg)
		return false
	}
	if int(msg.Rank) >= len(r.ranks) {
		refuse(r.out, from, msg, fmt.Errorf("rank %d: this run has %d ranks", msg.Rank, len(r.ranks)))
		return false
	}
	k := &r.ranks[msg.Rank]
	if millrace.StartKind(msg.Start) == millrace.StartContinue {
		return r.goOn(k, from, msg)
	}
	r.joins++
	r.asked, k.here = true, true
	k.join, k.away = &join{msg: msg, session: from, number: r.joins}, k.away || k.serving
	return false
}

// goOn lets a rank whose sidecar died take up its own position in the open attempt.
func (r *Ranks) goOn(k *rank, from roster.Session, msg *pb.Join) (began bool) {
	if r.s.Attempt == nil || msg.Attempt != r.s.Attempt.Attempt || msg.Step < r.s.Watermark {
		refuse(r.out, from, msg, millrace.Errorf(millrace.ErrFenced, "rank %d stands at step %d of attempt %d, "+
			"the run is at step %d of attempt %d: start the ranks again from a state or `latest`",
			msg.Rank, msg.Step, msg.Attempt, r.s.Watermark, r.s.CurrentAttempt()))
		return false
	}
	r.asked = true
	k.serve(from, msg.Step)
	resume(r.out, from, msg)
	r.CallRoll(from)
	return true
}

// serve notes that a rank serves in the open attempt, and has consumed the steps below one.
func (k *rank) serve(from roster.Session, below uint64) {
	k.serving, k.away, k.from, k.below, k.join = true, false, from, max(k.below, below), nil
	k.here = true
}

// Leave observes that a rank's trainer is gone. A start that it declared is forgotten.
func (r *Ranks) Leave(from roster.Session, rank uint32) {
	if r.dropOther(from, rank) {
		return
	}
	if int(rank) < len(r.ranks) {
		r.ranks[rank].join, r.ranks[rank].away, r.ranks[rank].here = nil, true, false
	}
}

// Connect observes a host that connected, with the positions of its ranks. Ranks of the open attempt continue from
// there, unless the host serves another topology than the run has.
func (r *Ranks) Connect(session roster.Session, hello *pb.SidecarHello) {
	if was, ok := r.services[hello.Name]; ok && was.session != session {
		r.Disconnect(was.session) // the end of its stream is noticed later, or was missed
	}
	r.services[hello.Name] = service{session, topologyOf(hello)}
	if r.isOfAnother(hello) {
		return
	}
	for _, p := range hello.Ranks {
		if p.Serving && int(p.Rank) < len(r.ranks) && p.Attempt == uint32(r.s.CurrentAttempt()) {
			k := &r.ranks[p.Rank]
			k.serving, k.away, k.from, k.below = true, false, session, max(k.below, p.Below)
			r.asked, k.here = true, true
		}
	}
}

// Tick observes the time.
func (r *Ranks) Tick(now time.Time) { r.call.now = now }

// Disconnect observes that a host's stream ended. Its ranks keep their places, and their joins are forgotten.
func (r *Ranks) Disconnect(session roster.Session) {
	maps.DeleteFunc(r.services, func(_ string, s service) bool { return s.session == session })
	for i := range r.ranks {
		k := &r.ranks[i]
		if k.from == session || k.join != nil && k.join.session == session {
			k.here = false
		}
		if k.join != nil && k.join.session == session {
			k.join = nil
		}
	}
	r.others = slices.DeleteFunc(r.others, func(o otherRank) bool { return o.session == session })
}

// Present observes which ranks of a host are there. It comes after everything that the host had said before it was
// asked.
func (r *Ranks) Present(from roster.Session, msg *pb.Present) {
	r.call.answer(from, msg.Call)
	for _, rank := range msg.Ranks {
		if int(rank) < len(r.ranks) {
			r.ranks[rank].present = max(r.ranks[rank].present, msg.Call)
		}
	}
}

// CallRoll asks a host which of its ranks are there, if a join waits for that.
func (r *Ranks) CallRoll(to roster.Session) {
	if r.call.number > 0 && len(r.joined()) > 0 {
		r.out.Send(to, r.call.order())
	}
}

// AreHere reports whether a trainer is connected, and whether one was in this life of the orchestrator.
func (r *Ranks) AreHere() (now, ever bool) {
	return slices.ContainsFunc(r.ranks, func(k rank) bool { return k.here }), r.asked
}

// joined lists the ranks that wait to begin.
func (r *Ranks) joined() (out []int) {
	for i := range r.ranks {
		if r.ranks[i].join != nil {
			out = append(out, i)
		}
	}
	return out
}
