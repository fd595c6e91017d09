package wire

import (
	"testing"

	pb "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/proto"
)

// FuzzPlan decodes plans. A plan that is taken encodes to itself.
func FuzzPlan(f *testing.F) {
	p := &millrace.Plan{Stream: millrace.Train, Step: 7, Ranks: 2, Microbatches: 1, SequenceLength: 64, MicroBatch: 2,
		Leaves: []millrace.Digest{{3}, {4}}, Assignments: []millrace.Assignment{{Rank: 1, Row: 1, Parts: 1,
			Segment: millrace.Segment{Source: 1, Ordinal: 9, Length: 17}}}}
	raw, err := pb.Marshal(PlanToProto(p, []byte("{}")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m proto.Plan
		if pb.Unmarshal(raw, &m) != nil {
			return
		}
		got, err := PlanFromProto(&m)
		if err != nil {
			return
		}
		again, err := PlanFromProto(PlanToProto(got, m.State))
		if err != nil || len(again.Assignments) != len(got.Assignments) || again.Content != got.Content {
			t.Fatalf("got %+v, %v, want %+v", again, err, got)
		}
	})
}
