package facts

import (
	"fmt"
	"strings"

	"millrace/mixing"
	pb "millrace/proto"
)

// Describe describes a change of the mixture in words; names are those of the sources, in order.
func Describe(c *pb.Mixed, names []string) string {
	switch change := c.GetChange().(type) {
	case *pb.Mixed_Schedule:
		milestones, err := MilestonesFromProto(change.Schedule.Milestones)
		if err != nil {
			return err.Error()
		}
		var parts []string
		for _, k := range milestones {
			parts = append(parts, DescribeMilestone(k, names))
		}
		return strings.Join(parts, "; ")
	case *pb.Mixed_Skip:
		to := change.Skip.To
		return fmt.Sprintf("the documents of steps %d to %d, %d excluded, are passed over", c.AtStep, to, to)
	case *pb.Mixed_Costs:
		return fmt.Sprintf("costs linear %d, quadratic %d", change.Costs.Linear, change.Costs.Quadratic)
	}
	return "a change of an unknown kind, made by a newer program"
}

// DescribeMilestone describes a milestone in words; names are those of the sources, in order.
func DescribeMilestone(k mixing.Milestone, names []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "from %s %d", strings.TrimSuffix(k.From.Measure.String(), "s"), k.From.Count)
	if k.Ramp != mixing.RampNone {
		fmt.Fprintf(&b, " %s over %d", k.Ramp, k.Over.Count)
	}
	b.WriteByte(':')
	for i, w := range readable(k.Weights) {
		name := fmt.Sprint(i)
		if i < len(names) {
			name = names[i]
		}
		fmt.Fprintf(&b, " %s %s", name, w)
	}
	return b.String()
}

// longWeight is the number of characters from which a weight counts as derived: groups and rules give weights of many
// digits.
const longWeight = 12

// readable returns weights as they are written, or as shares if they were derived.
func readable(weights []mixing.Weight) []string {
	out, long := make([]string, len(weights)), false
	for i, w := range weights {
		out[i] = w.String()
		long = long || len(out[i]) >= longWeight
	}
	parts, err := mixing.Proportion(weights)
	if !long || err != nil {
		return out
	}
	for i, share := range parts.Shares(nil) {
		out[i] = DecimalShare(share)
	}
	return out
}

// DecimalShare returns a share with six decimal places.
func DecimalShare(share uint32) string {
	millionths := (uint64(share)*1_000_000 + mixing.One/2) / mixing.One
	return fmt.Sprintf("%d.%06d", millionths/1_000_000, millionths%1_000_000)
}
