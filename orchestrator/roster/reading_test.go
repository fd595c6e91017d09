package roster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// TestATurnHasOneOrderForEachLoader: all sources of a turn share an order to a loader, and a stripe's assignment comes
// after what the loader was told before.
func TestATurnHasOneOrderForEachLoader(t *testing.T) {
	const sources = 500
	cfg, out := Config{Fence: func() *pb.Fence { return &pb.Fence{} }}, &Actions{}
	for i := range sources {
		cfg.Sources = append(
			cfg.Sources,
			Source{Name: fmt.Sprintf("s%d", i), Stripes: 2},
		)
	}
	r := New(cfg, out)
	r.Tick(time.Unix(1, 0))
	term := uint64(0)
	for i, name := range []string{"loader-0", "loader-1"} {
		hello := &pb.LoaderHello{Name: name, Pid: int64(i), Version: &pb.Version{
			Protocol: wire.ProtocolVersion, Planner: progress.PlannerVersion}}
		if err := r.Connect(&loader{}, hello); err != nil {
			t.Fatal(err)
		}
	}
	for _, st := range r.stripes.all {
		term++
		member := fmt.Sprint("loader-", st.index)
		r.Apply(&pb.Assigned{Source: st.name, Stripe: uint32(st.index), Member: member, Term: term})
	}
	r.Flush()
	out.Take()
	for i := range sources {
		r.Want(i, millrace.Ordinal(10_000+i))
		r.Release(i, 64)
	}
	r.Flush()
	actions := out.Take()
	if len(actions) != 2 {
		t.Fatalf("a turn over %d sources has %d orders, want one for each of 2 loaders", sources, len(actions))
	}
	for _, a := range actions {
		reading := a.Msg.(*pb.LoaderOrder).GetReading()
		if len(reading.GetSource()) != sources || reading.Until[7] != 10_007 || reading.Below[7] != 64 ||
			reading.Source[7] != "s7" {
			t.Errorf("the order has %d sources, entry 7 is %s until %d below %d", len(reading.GetSource()),
				reading.Source[7], reading.Until[7], reading.Below[7])
		}
	}
	r.Release(3, 128)
	// Reading starts again from 5: earlier releases must not reach the new reading.
	r.Reposition(3, 5, millrace.SeekPoint{}, Ordinals{})
	st := r.stripes.bySource[3][0]
	r.Apply(&pb.Assigned{Source: st.name, Member: "loader-0", Term: term + 1})
	r.Flush()
	var kinds []string
	for _, a := range out.Take() {
		order := a.Msg.(*pb.LoaderOrder)
		if a.To == r.members["loader-0"].session {
			kinds = append(kinds, fmt.Sprintf("%T", order.Order)[len("*proto.LoaderOrder_"):])
		}
	}
	if want := []string{"Reading", "Read", "Reading"}; !slices.Equal(kinds, want) {
		t.Errorf("loader-0 was told %v, want %v", kinds, want)
	}
}
