package roster

import (
	"fmt"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// CheckVersion refuses a role whose program differs from this one in protocol or planner.
func CheckVersion(name string, v *pb.Version, program string) error {
	var differs string
	switch {
	case v.GetProtocol() != wire.ProtocolVersion:
		differs = fmt.Sprintf("protocol %d, the run has %d", v.GetProtocol(), wire.ProtocolVersion)
	case !progress.IsSupported(v.GetPlanner()):
		differs = fmt.Sprintf("planner version %d, which this run does not know", v.GetPlanner())
	default:
		return nil
	}
	theirs := v.GetProgram()
	if theirs == "" {
		theirs = "a program without a version"
	}
	return millrace.Errorf(millrace.ErrInvalid, "%s is %s with %s; the orchestrator is %s: run both from one release",
		name, theirs, differs, program)
}
