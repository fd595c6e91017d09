package orchestrator

import (
	"fmt"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// speaks refuses a role whose program could not work in this run: two programs that differ in protocol or planner must not share one.
func (m *Machine) speaks(name string, v *pb.Version) error {
	var differs string
	switch {
	case v.GetProtocol() != wire.ProtocolVersion:
		differs = fmt.Sprintf("protocol %d, the run has %d", v.GetProtocol(), wire.ProtocolVersion)
	case !planner.Supported(v.GetPlanner()):
		differs = fmt.Sprintf("planner version %d, which this run does not know", v.GetPlanner())
	default:
		return nil
	}
	program := v.GetProgram()
	if program == "" {
		program = "a program without a version"
	}
	return millrace.Errorf(millrace.ErrInvalid, "%s is %s with %s; the orchestrator is %s: run both from one release", name, program, differs, m.cfg.By)
}
