package attempts

import (
	"slices"

	"millrace"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// start is a declared start in terms of this run.
type start struct {
	kind       millrace.StartKind // StartNone before the join is resolved
	step       uint64
	microbatch uint32
	state      *facts.RunState // to start from
	placement  string          // of a mid-step state
	forgets    bool            // journaled changes of the mixture for steps from there on are dropped
	base       *facts.RunState // the run's state when `latest` was resolved
	changes    uint64          // of the mixture that were journaled by then
	said       []string        // messages for the user: the effects of a change of files
	notice     string          // for the trainer: why it begins elsewhere than it declared
}

// overrideChanges, as an override of a state, drops the changes of the mixture that were journaled for steps from the
// state's on.
const overrideChanges = "mixture.changes"

// isStale reports whether a join has no start yet, or `latest` has moved since. While a rank that came back waits,
// others may still move the step at which the run continues.
func (at *start) isStale(s *facts.State) bool {
	return at.kind == millrace.StartNone ||
		at.kind == millrace.StartLatest && (at.base != s.Base || at.changes != s.Changes)
}

// resolve returns the start that a join declares, or why it is refused.
func (r *Ranks) resolve(k *rank, msg *pb.Join) (start, error) {
	at := start{kind: millrace.StartKind(msg.Start), base: r.s.Base, changes: r.s.Changes}
	if at.kind == millrace.StartNone {
		if r.hasHistory() && !r.isUnheard(k) {
			return at, millrace.Errorf(millrace.ErrInvalid,
				"this run has history (attempt %d, step %d): say where to start: "+
					"load_state_dict(state), or connect(start=\"latest\") or connect(start=\"fresh\")",
				r.s.CurrentAttempt(), r.s.Watermark)
		}
		at.kind = millrace.StartFresh
	}
	if at.kind == millrace.StartLatest && r.s.Attempt == nil {
		at.kind = millrace.StartFresh
	}
	switch at.kind {
	case millrace.StartFresh:
		return at.from(r.s, r.Fresh())
	case millrace.StartLatest:
		return at.from(r.s, r.s.Base)
	case millrace.StartState:
		return r.resolveState(at, msg)
	default:
		return at, millrace.Errorf(millrace.ErrInvalid, "start %q: want fresh or latest", at.kind)
	}
}

// resolveState resolves a start at a state that a trainer saved.
func (r *Ranks) resolveState(at start, msg *pb.Join) (start, error) {
	saved, err := facts.ReadSaved(msg.State)
	if err != nil {
		return at, err
	}
	state, err := saved.Migrate(r.cfg.Run(), r.cfg.Rules, msg.Override)
	if err != nil {
		return at, err
	}
	at.microbatch, at.placement = saved.Microbatch, saved.Placement
	at.said = state.Said
	at.forgets = slices.Contains(msg.Override, overrideChanges)
	return at.from(r.s, state)
}

// from returns the start at a state of this run, with the changes of the mixture that stay in force from there on.
func (at start) from(s *facts.State, state *facts.RunState) (_ start, err error) {
	if at.forgets {
		at.state = state.WithOverrides(state.Overrides)
	} else if at.state, err = s.Forward(state); err != nil {
		return at, err
	}
	at.step = at.state.NextStep()
	return at, nil
}

// Fresh returns the state before the first step.
func (r *Ranks) Fresh() *facts.RunState {
	run := r.cfg.Run()
	return facts.NewRunState(run, 0, progress.NewOf(r.s.PlannerVersion, len(run.Spec.Sources)), facts.Overrides{})
}

// hasHistory reports whether a rank may have had a batch of this run before it declared no start: another `up` has
// sealed a step, or a rank has consumed one. An attempt without a step is no history: its `up` may have been killed
// before the first step. Steps that this `up` has sealed are no history either: an orchestrator may have been lost
// before any rank heard of them, and the ranks declare the same starts again.
func (r *Ranks) hasHistory() bool {
	for i := range r.ranks {
		if r.ranks[i].below > 0 {
			return true
		}
	}
	return !r.isOwn() || r.s.Watermark > 0
}

// isOwn reports whether no other `up` than this one has sealed a step of the run.
func (r *Ranks) isOwn() bool { return r.s.FirstUp == "" || r.s.FirstUp == r.cfg.Up }

// isUnheard reports whether a rank that declares no start has yet to begin the attempt that was opened from nothing.
// All steps were sealed under this `up`. Other ranks have gone ahead; the steps that they consumed are no history to
// this rank.
func (r *Ranks) isUnheard(k *rank) bool { return r.isOwn() && r.hasMissed(k, &start{state: r.Fresh()}) }

// isAtItsPlace reports whether a rank declares its current position in the open attempt.
func (r *Ranks) isAtItsPlace(k *rank) bool {
	if k.join == nil {
		return false
	}
	at := &k.join.start
	if !r.isAligned(at) {
		return false
	}
	if at.microbatch > 0 {
		return r.hasMissed(k, at)
	}
	return k.serving && at.kind != millrace.StartFresh && at.step == k.below || r.isAhead(k, at) ||
		r.hasMissed(k, at)
}

// isAligned reports whether a rank that begins alone takes the same microbatches of its first step as the other ranks.
// The open attempt may have begun inside that step, or the rank may declare so.
func (r *Ranks) isAligned(at *start) bool {
	own, others := *at, start{}
	if r.s.Attempt != nil && at.step == r.s.Attempt.Step {
		others.microbatch, others.placement = r.s.Inside()
	}
	if own.microbatch == 0 && others.microbatch == 0 {
		return true
	}
	sealed, ok := r.s.Sealed[at.step]
	if !ok {
		return false
	}
	own.settle(sealed.Plan)
	others.settle(sealed.Plan)
	return own.microbatch == others.microbatch
}

// isAhead reports whether a rank continues from a state of the open attempt that shows more consumed steps than the
// rank has committed: it saved the state and died before the commit.
func (r *Ranks) isAhead(k *rank, at *start) bool {
	return k.serving && at.kind == millrace.StartState && at.step > k.below && at.step <= r.s.Next &&
		at.state.IsAlike(r.s.At(at.step))
}

// hasMissed reports whether a rank rejoins at the watermark after a lost reply. Others serve, and this orchestrator
// knows of no step beyond the watermark that the rank has consumed. Its answer was lost with an orchestrator or on the
// way, or its trainer died and came back while there was no orchestrator.
func (r *Ranks) hasMissed(k *rank, at *start) bool {
	if r.s.Attempt == nil || k.below != r.s.Watermark || !at.state.IsAlike(r.s.Base) {
		return false
	}
	for i := range r.ranks {
		if other := &r.ranks[i]; other != k && other.serving && !other.away {
			return true
		}
	}
	return false
}
