package attempts

import (
	"millrace/orchestrator/facts"
	"millrace/orchestrator/roster"
	pb "millrace/proto"
)

// refuse answers a join with the reason why the rank cannot start there.
func refuse(out *roster.Sidecars, to roster.Session, msg *pb.Join, err error) {
	refusal := &pb.Refusal{Rank: msg.Rank, Call: msg.Call, Reason: err.Error()}
	out.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Refusal{Refusal: refusal}})
}

// begin answers a join: the rank begins at a step of an attempt. state is nil if it keeps its own.
func begin(
	out *roster.Sidecars, to roster.Session, msg *pb.Join, attempt uint32, step uint64, microbatch uint32,
	state *facts.RunState,
) {
	b := &pb.Begin{Rank: msg.Rank, Call: msg.Call, Attempt: attempt, Step: step, Microbatch: microbatch}
	if state != nil {
		b.State = state.Encode()
	}
	out.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Begin{Begin: b}})
}

// confirm answers a commit.
func confirm(out *roster.Sidecars, to roster.Session, c *pb.Commit) {
	committed := &pb.Committed{Rank: c.Rank, Attempt: c.Attempt, Below: c.Step + 1}
	out.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Committed{Committed: committed}})
}
