package attempts

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// otherRank is a rank of a host that serves another topology than the run has. It waits until all ranks of the run have
// left.
type otherRank struct {
	session roster.Session
	msg     *pb.Join
}

// named is a message that names the topology of a host.
type named interface {
	GetWorld() uint32
	GetTp() uint32
	GetCp() uint32
	GetPp() uint32
}

func topologyOf(msg named) millrace.Topology {
	return millrace.Topology{Ranks: int(msg.GetWorld()), TP: int(msg.GetTp()), CP: int(msg.GetCp()),
		PP: int(msg.GetPp())}
}

// service is the topology that a host serves.
type service struct {
	session  roster.Session
	topology millrace.Topology
}

// services are the services of the hosts that are connected, by the names of their sidecars.
type services map[string]service

// next returns the topology that all hosts serve, if there is one and the run has another one. Hosts of a run whose
// topology is fixed name none.
func (s services) next(now millrace.Topology) (next millrace.Topology, is bool) {
	for _, host := range s {
		if host.topology == now || host.topology.Ranks == 0 || is && host.topology != next {
			return next, false
		}
		next, is = host.topology, true
	}
	return next, is
}

// isOfAnother reports whether a message names another topology than the run has.
func (r *Ranks) isOfAnother(msg named) bool {
	return r.cfg.Reshape != nil && msg.GetWorld() > 0 && topologyOf(msg) != r.cfg.Shape()
}

// queueOther notes the start of a rank of another topology. A rank that stands in this run already is refused.
func (r *Ranks) queueOther(from roster.Session, msg *pb.Join) {
	if millrace.StartKind(msg.Start) == millrace.StartContinue {
		refuse(r.out, from, msg, millrace.Errorf(millrace.ErrFenced, "rank %d stands in a run of %s, and its host "+
			"serves %s now: start the ranks again from a state or `latest`",
			msg.Rank, describe(r.cfg.Shape()), describe(topologyOf(msg))))
		return
	}
	r.dropOther(from, msg.Rank)
	r.others = append(r.others, otherRank{from, msg})
}

// dropOther drops the wait of a rank of another topology. It reports whether the rank waited.
func (r *Ranks) dropOther(from roster.Session, rank uint32) bool {
	n := len(r.others)
	r.others = slices.DeleteFunc(r.others, func(o otherRank) bool { return o.session == from && o.msg.Rank == rank })
	return len(r.others) < n
}

// IsReshapeDue reports whether the run is to take another topology: a rank waits for that, and no rank of the run is
// there. The record of what the ranks have consumed comes first.
func (r *Ranks) IsReshapeDue() bool {
	now, _ := r.AreHere()
	return len(r.others) > 0 && !now && r.Acknowledged() == nil
}

// TakeTopology makes the run one of the topology for which the first rank waits.
func (r *Ranks) TakeTopology() {
	waiting := r.others
	if err := r.reshape(topologyOf(waiting[0].msg)); err != nil {
		refuse(r.out, waiting[0].session, waiting[0].msg, err)
		r.others = waiting[1:]
		return
	}
	for _, o := range waiting {
		r.Join(o.session, o.msg)
	}
}

// reshape makes the run one of another topology. No rank has a place in it yet.
func (r *Ranks) reshape(t millrace.Topology) error {
	if err := r.cfg.Reshape(t); err != nil {
		return err
	}
	r.lineUp()
	r.out.Say("the run has %s now", describe(t))
	return nil
}

// describe names a topology for people.
func describe(t millrace.Topology) string {
	text := fmt.Sprintf("%d ranks", t.Ranks)
	if t.TP*t.CP*t.PP > 1 {
		text += fmt.Sprintf(" with tp %d, cp %d, pp %d", t.TP, t.CP, t.PP)
	}
	return text
}

// Here lists the ranks whose trainer is connected.
func (r *Ranks) Here() (out []uint32) {
	for i := range r.ranks {
		if r.ranks[i].here {
			out = append(out, uint32(i))
		}
	}
	return out
}
