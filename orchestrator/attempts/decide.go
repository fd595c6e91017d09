package attempts

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"millrace"
	"millrace/orchestrator/facts"
	pb "millrace/proto"
)

// Decide returns what to do next, and changes nothing. inForce are the overrides of the newest attempt. It may be
// called when the files of every source are known.
func (r *Ranks) Decide(inForce facts.Overrides) (d Decision) {
	if r.midway != nil {
		return d
	}
	if d.starts = r.resolutions(); len(d.starts) > 0 {
		return d
	}
	if d.begin, d.call = r.rejoining(); len(d.begin) > 0 || d.call > 0 {
		return d
	}
	if len(r.joined()) < len(r.ranks) {
		return d
	}
	first := &r.ranks[0].join.start
	for i := range r.ranks {
		if at := &r.ranks[i].join.start; at.step != first.step || at.microbatch != first.microbatch ||
			at.forgets != first.forgets {
			var waits bool
			if waits, d.call = r.needsAnswers(); waits {
				return d
			}
			d.starts = r.refusals(fmt.Errorf("ranks start at different places: rank 0 at step %d, microbatch %d, "+
				"rank %d at step %d, microbatch %d: load the same checkpoint on every rank",
				first.step, first.microbatch, i, at.step, at.microbatch))
			return d
		}
	}
	if r.isSameAttempt(first, inForce) {
		d.begin = r.joined()
		return d
	}
	d.At = first.state
	d.Opened = &pb.Opened{Attempt: uint32(r.s.CurrentAttempt()) + 1, Step: first.step,
		State:   first.state.EncodeInside(first.microbatch, first.placement),
		Placing: r.cfg.Placing, Up: r.cfg.Up, Forgets: first.forgets}
	return d
}

// resolutions resolves the joins that have no start yet.
func (r *Ranks) resolutions() (out []resolution) {
	for i := range r.ranks {
		if k := &r.ranks[i]; k.join != nil && k.join.start.isStale(r.s) {
			at, err := r.resolve(k, k.join.msg)
			out = append(out, resolution{i, at, err})
		}
	}
	return out
}

// needsAnswers reports whether a start may be of a trainer that is gone, although all ranks have declared one: the
// ranks are on several hosts, and one has said nothing since the newest join. That may be the host of this join, which
// was on the way when the host was lost. Then the hosts are asked: call is the number of the join, as in rejoining. A
// host answers after everything that it had to say before.
func (r *Ranks) needsAnswers() (needs bool, call uint64) {
	newest, areTogether := uint64(0), true
	for i := range r.ranks {
		newest = max(newest, r.ranks[i].join.number)
		areTogether = areTogether && r.ranks[i].join.session == r.ranks[0].join.session
	}
	for i := range r.ranks {
		needs = needs || !areTogether && r.call.answered[r.ranks[i].join.session] < newest
	}
	if needs && r.call.number < newest {
		call = newest
	}
	return needs, call
}

// rejoining lists single ranks that declare their current position: they continue without the others. If several ranks
// had left, either all of them continue or none does. If one of them cannot, every rank must start again with it.
//
// The others must be there. A host may take longer to say that its ranks left than another host's ranks take to come
// back, so the hosts are asked: call is then the number of the join that they are asked about. A host forgets a rank
// when its sidecar dies; that rank counts as there after a while.
func (r *Ranks) rejoining() (begin []int, call uint64) {
	if r.isPlacedAnew() || len(r.joined()) == len(r.ranks) {
		return nil, 0
	}
	newest := uint64(0)
	for i := range r.ranks {
		k := &r.ranks[i]
		if r.isAtItsPlace(k) {
			newest = max(newest, k.join.number)
			begin = append(begin, i)
		} else if k.away && !r.isThrough(k) {
			return nil, 0
		}
	}
	switch {
	case newest == 0:
		return nil, 0
	case r.othersArePresent(newest) || r.call.isOver(newest, r.out):
		return begin, 0
	case r.call.number < newest:
		return nil, newest
	}
	return nil, 0
}

// othersArePresent reports whether every rank that does not rejoin is known to have been there after a join.
func (r *Ranks) othersArePresent(number uint64) bool {
	for i := range r.ranks {
		k := &r.ranks[i]
		if !r.isAtItsPlace(k) && !r.isThrough(k) && !r.wasThrough(i) && k.present < number {
			return false
		}
	}
	return true
}

func (r *Ranks) isPlacedAnew() bool { return !proto.Equal(r.s.Attempt.GetPlacing(), r.cfg.Placing) }

// isSameAttempt reports whether all ranks can continue in the open attempt: they start at the watermark, no rank
// consumes a batch twice, and the placement is the same.
func (r *Ranks) isSameAttempt(at *start, inForce facts.Overrides) bool {
	if r.s.Attempt == nil || r.isPlacedAnew() || at.step != r.s.Watermark || at.microbatch != 0 ||
		at.kind == millrace.StartFresh || at.forgets {
		return false
	}
	// With all changes of the mixture that are known by now in this attempt.
	if string(at.state.Encode()) != string(r.s.Base.WithOverrides(inForce).Encode()) {
		return false
	}
	for i := range r.ranks {
		if r.ranks[i].below > at.step {
			return false
		}
	}
	return true
}
