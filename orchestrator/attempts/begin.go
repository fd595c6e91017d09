package attempts

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/orchestrator/facts"
	pb "millrace/proto"
)

// Decision says which attempt to open, or how to answer ranks without a record. It is valid until the next event.
type Decision struct {
	Opened *pb.Opened      // journal it, then call Open
	At     *facts.RunState // the state at which Opened begins
	starts []resolution
	begin  []int  // ranks that begin at their declared starts
	call   uint64 // ask all hosts which ranks are there after this join
}

// resolution is the start of one rank's join, or why it is refused.
type resolution struct {
	rank  int
	start start
	err   error
}

// IsEmpty reports whether there is nothing to do.
func (d Decision) IsEmpty() bool {
	return d.Opened == nil && len(d.starts) == 0 && len(d.begin) == 0 && d.call == 0
}

// Settle carries out the part of a decision that needs no record. began is true if ranks have begun.
func (r *Ranks) Settle(d Decision) (began bool) {
	for _, s := range d.starts {
		k := &r.ranks[s.rank]
		if s.err != nil {
			refuse(r.out, k.join.session, k.join.msg, s.err)
			k.join = nil
		} else {
			k.join.start = s.start
			r.say(s.start.said)
		}
	}
	if d.call > 0 {
		r.call.begin(d.call)
		r.out.Broadcast(r.call.order())
	}
	r.begin(d.begin)
	return len(d.begin) > 0
}

// say says the lines about a start once, although every rank declares it.
func (r *Ranks) say(lines []string) {
	for _, line := range lines {
		if !slices.Contains(r.said, line) {
			r.said = append(r.said, line)
			r.out.Say("%s", line)
		}
	}
}

// begin answers ranks that wait: they begin at their declared starts. A start inside a step needs the step's plan.
func (r *Ranks) begin(ranks []int) {
	for _, i := range ranks {
		k := &r.ranks[i]
		j := k.join
		if j.start.microbatch > 0 {
			j.start.settle(r.s.Sealed[j.start.step].Plan)
		}
		k.serve(j.session, j.start.step)
		begin(r.out, j.session, j.msg, r.s.Attempt.Attempt, &j.start, r.s.At(j.start.step))
	}
}

// Open starts an attempt that is durable. The ranks begin, unless the attempt starts inside a step: then they wait for
// the plan of the step. began is true if they have begun.
func (r *Ranks) Open() (began bool) {
	for i := range r.ranks {
		r.ranks[i].serving, r.ranks[i].below, r.ranks[i].last = false, r.s.Watermark, nil
	}
	joined := r.joined()
	if len(joined) > 0 && r.ranks[joined[0]].join.start.microbatch > 0 {
		r.midway = r.ranks[joined[0]].join
		return false
	}
	r.begin(joined)
	return true
}

// Seal observes the plan of a sealed step. It compares the placement of the first one with the placement under which a
// mid-step state was saved. Under another placement, all ranks go back to the beginning of the step. began is true if
// ranks have begun.
func (r *Ranks) Seal(p *pb.Plan) (began bool) {
	j := r.midway
	if j == nil || p.Step != j.start.step {
		return false
	}
	r.midway = nil
	at := j.start
	if at.isBeyond(p) {
		r.refuseAll(millrace.Errorf(millrace.ErrMismatch, "the state was saved inside step %d, "+
			"after %d of its microbatches, and it has %d: pass what state_dict() returned, unchanged",
			at.step, at.microbatch, p.Microbatches))
		return false
	}
	if at.settle(p); at.notice != "" {
		r.out.Say("warning: %s", at.notice)
	}
	r.begin(r.joined())
	return true
}

// isBeyond reports whether a start inside a step has taken all microbatches of its step.
func (at *start) isBeyond(p *pb.Plan) bool {
	return fmt.Sprintf("%x", p.Placement) == at.placement && at.microbatch >= p.Microbatches
}

// settle moves a start inside a step to the beginning of the step if the step is placed otherwise than under the state.
func (at *start) settle(p *pb.Plan) {
	if at.microbatch == 0 || fmt.Sprintf("%x", p.Placement) == at.placement {
		return
	}
	at.notice = fmt.Sprintf("the state was saved inside step %d, after %d of its microbatches, and the ranks, "+
		"micro_batch_size, balance or layout differ now: training goes back to the beginning of step %d. "+
		"If the gradients of these microbatches were applied, they are trained again.",
		at.step, at.microbatch, at.step)
	at.microbatch = 0
}

// End observes that no step follows. It refuses a start inside a step that the run does not reach.
func (r *Ranks) End() {
	if j := r.midway; j != nil {
		r.midway = nil
		r.refuseAll(millrace.Errorf(millrace.ErrMismatch,
			"the state was saved inside step %d, and the run ends before it: "+
				"raise `stop`, or start from a state of a step's end", j.start.step))
	}
}

// refusals refuses every join for one reason.
func (r *Ranks) refusals(err error) (out []resolution) {
	for _, i := range r.joined() {
		out = append(out, resolution{rank: i, err: err})
	}
	return out
}

// refuseAll refuses every join.
func (r *Ranks) refuseAll(err error) { r.Settle(Decision{starts: r.refusals(err)}) }
