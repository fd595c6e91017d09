package attempts

import (
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// Commit observes that a rank's trainer asked for the batch after a step, and answers that it is known. A commit of an
// attempt that is over changes nothing.
//
// The commit of the stream's last step is answered when it is durable. The rank leaves then, and could not say it
// again.
func (r *Ranks) Commit(from roster.Session, c *pb.Commit) {
	if int(c.Rank) >= len(r.ranks) {
		return
	}
	k := &r.ranks[c.Rank]
	if r.s.Attempt != nil && c.Attempt == r.s.Attempt.Attempt {
		k.below = max(k.below, c.Step+1)
		if k.serving && r.isThrough(k) && !r.wasThrough(int(c.Rank)) {
			k.last, k.from = c, from
			return
		}
	}
	confirm(r.out, from, c)
}

// isThrough reports whether a rank has consumed the whole stream: it will not come back.
func (r *Ranks) isThrough(k *rank) bool { return r.s.Ended != nil && k.below >= r.s.Ended.Steps }

// wasThrough reports whether the journal says that a rank has consumed the whole stream. The journal counts ranks of
// the newest attempt: under another topology, a rank with the same number is unknown.
func (r *Ranks) wasThrough(rank int) bool { return r.s.Through[uint32(rank)] && !r.isPlacedAnew() }

// Acknowledged returns the record that moves the watermark to the slowest rank, nil if nothing moves.
func (r *Ranks) Acknowledged() *pb.Acknowledged {
	if r.s.Attempt == nil {
		return nil
	}
	below, all := ^uint64(0), true
	for i := range r.ranks {
		below, all = min(below, r.ranks[i].below), all && (r.ranks[i].serving || r.wasThrough(i))
	}
	if !all || below > r.s.Next {
		below = r.s.Watermark
	}
	through := r.newlyThrough(r.s.Ended)
	if below <= r.s.Watermark && len(through) == 0 {
		return nil
	}
	return &pb.Acknowledged{Attempt: r.s.Attempt.Attempt, Below: max(below, r.s.Watermark), Through: through}
}

// AtEnd returns the record that lists the ranks which have consumed a stream that ends so, nil for none. They leave as
// soon as they hear of the end.
func (r *Ranks) AtEnd(end *pb.Ended) *pb.Acknowledged {
	through := r.newlyThrough(end)
	if len(through) == 0 {
		return nil
	}
	return &pb.Acknowledged{Attempt: r.s.Attempt.Attempt, Below: r.s.Watermark, Through: through}
}

// newlyThrough lists the ranks that have consumed a stream that ends so and for which no record says so yet.
func (r *Ranks) newlyThrough(end *pb.Ended) (out []uint32) {
	for i := range r.ranks {
		if end != nil && r.ranks[i].serving && r.ranks[i].below >= end.Steps && !r.wasThrough(i) {
			out = append(out, uint32(i))
		}
	}
	return out
}

// Acknowledge answers the last commits of ranks when they are durable.
func (r *Ranks) Acknowledge(durable *pb.Acknowledged) {
	for _, i := range durable.Through {
		if c := r.ranks[i].last; c != nil {
			r.ranks[i].last = nil
			confirm(r.out, r.ranks[i].from, c)
		}
	}
}

// AreDone reports whether every rank has consumed the whole stream. A run that was complete before this `up`, or whose
// end no rank has reached, waits for ranks that declare a start.
func (r *Ranks) AreDone() bool {
	if r.s.Attempt == nil || r.s.Ended == nil || r.s.Watermark < r.s.Ended.Steps {
		return false
	}
	for i := range r.ranks {
		if r.ranks[i].serving {
			return true
		}
	}
	return r.s.Attempt.Up == r.cfg.Up && len(r.s.Through) > 0
}
