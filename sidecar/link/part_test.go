package link

import (
	"errors"
	"slices"
	"strings"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/seal"
	"millrace/internal/wire"
	"millrace/proto"
	"millrace/sidecar"
)

// partOf returns the part for rank 0 of a plan for two ranks, after a change.
func partOf(t *testing.T, change func(*millrace.Plan)) *proto.SidecarOrder {
	t.Helper()
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Step: 3, Ranks: 2, Microbatches: 2}
	for i := range uint32(8) {
		a := millrace.Assignment{Rank: millrace.Rank(i / 4), Microbatch: i / 2 % 2, Row: i % 2}
		a.Ordinal, a.Length = millrace.Ordinal(i), 9
		p.Assignments = append(p.Assignments, a)
	}
	p.Leaves, p.Placement = seal.Placement(p, millrace.Shape{SequenceLength: 64})
	p.Held, p.Labels = []millrace.Rank{0}, 64
	p.Proof = seal.NewTree(p.Leaves).Prove(p.Held, 2)
	p.Assignments, p.Leaves = p.Assignments[:4], p.Leaves[:2]
	change(p)
	body, err := pbuf.Marshal(wire.PlanToProto(p, []byte(`{"step":4}`)))
	if err != nil {
		t.Fatal(err)
	}
	return &proto.SidecarOrder{Order: &proto.SidecarOrder_Part{Part: body}}
}

// TestAHostAsksForItsParts: a host with all data-parallel ranks gets whole plans.
func TestAHostAsksForItsParts(t *testing.T) {
	for _, c := range []struct {
		topology millrace.Topology
		ranks    []millrace.Rank
		want     []uint32
	}{
		{millrace.Topology{Ranks: 8, TP: 1, CP: 1, PP: 1}, []millrace.Rank{4, 5, 6, 7}, []uint32{4, 5, 6, 7}},
		{millrace.Topology{Ranks: 16, TP: 2, CP: 2, PP: 1}, []millrace.Rank{8, 9, 10, 15}, []uint32{2, 3}},
		{millrace.Topology{Ranks: 8, TP: 1, CP: 1, PP: 2}, []millrace.Rank{0, 1, 2, 3}, nil},
		{millrace.Topology{Ranks: 12, TP: 1, CP: 1, PP: 2}, []millrace.Rank{4, 5, 6, 7}, []uint32{0, 1, 4, 5}},
		{millrace.Topology{Ranks: 2, TP: 1, CP: 1, PP: 1}, []millrace.Rank{0, 1}, nil},
	} {
		config := Config{Topology: c.topology, Ranks: c.ranks}
		if got := config.parts(); !slices.Equal(got, c.want) {
			t.Errorf("%+v, ranks %d: parts %d, want %d", c.topology, c.ranks, got, c.want)
		}
	}
	_, x := newWorld(t, 1)
	if got := x.hello.Parts; !slices.Equal(got, []uint32{0}) {
		t.Errorf("a host with one of two ranks asks for the parts of ranks %d", got)
	}
}

func TestAPartIsVerifiedOnReceipt(t *testing.T) {
	w, x := newWorld(t, 1)
	x.welcome("web")
	w.begin(x, 0, 1, 3)
	x.order(1, partOf(t, func(*millrace.Plan) {}))
	p, err := w.link.Plan(w.ctx(), 1, 3)
	if err != nil || p.Ranks != 2 || len(p.Assignments) != 4 || p.Labels != 64 || string(p.State) != `{"step":4}` {
		t.Fatalf("got %+v, %v", p, err)
	}
	for want, change := range map[string]func(*millrace.Plan){
		"verify step 3 rank 0 microbatch 1: its 2 segments have digest ": func(p *millrace.Plan) {
			p.Assignments[3].Length++
		},
		"verify step 3: the leaves of the ranks [0] have root ": func(p *millrace.Plan) { p.Proof[0][0] ^= 128 },
		"verify step 3: 2 leaves for the ranks [0 1] × 2": func(p *millrace.Plan) {
			p.Held = []millrace.Rank{0, 1}
		},
		"verify step 3: the leaves of the ranks [1] have root ": func(p *millrace.Plan) { p.Held[0] = 1 },
		"verify step 3: a proof of 2 digests does not fit the ranks [0] of 2": func(p *millrace.Plan) {
			p.Proof = append(p.Proof, p.Proof[0])
		},
	} {
		w, x := newWorld(t, 1)
		x.welcome("web")
		w.begin(x, 0, 1, 3)
		x.order(1, partOf(t, change))
		var run *sidecar.RunError
		if _, err := w.link.Plan(w.ctx(), 1, 3); !errors.As(err, &run) || !strings.Contains(run.Reason, want) {
			t.Errorf("got %v, want %s", err, want)
		} else if f := x.event().GetFatal(); f.GetReason() != run.Reason {
			t.Errorf("the orchestrator was told %v", f)
		}
	}
}
