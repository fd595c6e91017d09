package orchestrator

import (
	"millrace"
	pb "millrace/proto"
)

// redrawn has the queues take the documents that sealed steps of the window under way hold as these hold them. The rest of the window is drawn again
// from facts, and a document may have gone bad since it was planned of which nobody has said so yet.
func (m *Machine) redrawn() {
	if m.s.Attempt == nil {
		return
	}
	tail := &m.s.Tail().Planner
	if tail.Done.Steps == 0 {
		return
	}
	for _, p := range m.s.Begun {
		m.asSealed(p)
	}
	from, _ := tail.Drawn()
	for step := max(uint64(from), m.s.Watermark); step < m.s.Next; step++ {
		m.asSealed(m.s.Sealed[step].Plan)
	}
}

// asSealed tells of the documents whose end a plan holds how long they are.
func (m *Machine) asSealed(p *pb.Plan) {
	as := p.Assignments
	for i, ordinal := range as.GetOrdinal() {
		if !as.More[i] {
			m.queues[as.Source[i]].Planned(millrace.Ordinal(ordinal), as.Offset[i]+as.Length[i])
		}
	}
}
