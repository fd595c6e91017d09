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

// begin answers a join: the rank begins at its start in an attempt. state is the run's state before the step.
func begin(
	out *roster.Sidecars, to roster.Session, msg *pb.Join, attempt uint32, at *start, state *facts.RunState,
) {
	b := &pb.Begin{Rank: msg.Rank, Call: msg.Call, Attempt: attempt, Step: at.step, Microbatch: at.microbatch,
		Notice: at.notice, State: state.EncodeInside(at.microbatch, at.placement)}
	out.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Begin{Begin: b}})
}

// resume answers a rank that lost only its sidecar: it continues at its own position and keeps its state.
func resume(out *roster.Sidecars, to roster.Session, msg *pb.Join) {
	b := &pb.Begin{Rank: msg.Rank, Call: msg.Call, Attempt: msg.Attempt, Step: msg.Step, Microbatch: msg.Microbatch}
	out.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Begin{Begin: b}})
}

// confirm answers a commit.
func confirm(out *roster.Sidecars, to roster.Session, c *pb.Commit) {
	committed := &pb.Committed{Rank: c.Rank, Attempt: c.Attempt, Below: c.Step + 1}
	out.Send(to, &pb.SidecarOrder{Order: &pb.SidecarOrder_Committed{Committed: committed}})
}
