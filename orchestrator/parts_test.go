package orchestrator

import (
	"bytes"
	"slices"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/seal"
	"millrace/internal/wire"
	"millrace/proto"
)

// sentPlans returns the plans that a sidecar was sent, by step, those of them that are parts as they were encoded, and
// their states.
func sentPlans(t *testing.T, b *box) (
	plans map[uint64]*millrace.Plan, bodies map[uint64][]byte, states map[uint64]string,
) {
	t.Helper()
	plans, bodies, states = map[uint64]*millrace.Plan{}, map[uint64][]byte{}, map[uint64]string{}
	for _, msg := range b.got {
		order, ok := msg.(*proto.SidecarOrder)
		if !ok {
			continue
		}
		m := order.GetPlan()
		if body := order.GetPart(); body != nil {
			m = &proto.Plan{}
			if err := pbuf.Unmarshal(body, m); err != nil {
				t.Fatal(err)
			}
			bodies[m.Step] = body
		}
		if m == nil {
			continue
		}
		p, err := wire.PlanFromProto(m)
		if err != nil {
			t.Fatal(err)
		}
		if plans[m.Step] != nil {
			t.Errorf("step %d was sent twice", m.Step)
		}
		plans[m.Step], states[m.Step] = p, string(m.State)
	}
	return plans, bodies, states
}

// TestEachHostGetsItsPartOfAPlan: two sidecars with four ranks each get their own segments, which together are the
// plan. A further one with the ranks of the second, as a further pipeline stage has them, gets the same bytes; one with
// all ranks gets the whole plan.
func TestEachHostGetsItsPartOfAPlan(t *testing.T) {
	w := newWorld(t, 8)
	w.connect() // a sidecar that asks for no parts
	hosts := map[string]*box{"sidecar-8": {}, "sidecar-12": {}, "sidecar-20": {}}
	low, high := []uint32{0, 1, 2, 3}, []uint32{4, 5, 6, 7}
	for name, ranks := range map[string][]uint32{"sidecar-8": low, "sidecar-12": high, "sidecar-20": high} {
		hello := &proto.SidecarHello{Version: testVersion(), Name: name, Parts: ranks}
		if err := w.m.SidecarUp(hosts[name], hello); err != nil {
			t.Fatal(err)
		}
	}
	w.turn()
	w.joinAll("fresh", nil)
	w.consume(4)
	wholes, none, states := sentPlans(t, w.sidecar)
	if len(wholes) < 5 || len(none) > 0 {
		t.Fatalf("the sidecar with all ranks got %d plans, %d in parts", len(wholes), len(none))
	}
	first, _, firstStates := sentPlans(t, hosts["sidecar-8"])
	second, bodies, secondStates := sentPlans(t, hosts["sidecar-12"])
	_, same, _ := sentPlans(t, hosts["sidecar-20"])
	shape := millrace.Shape{SequenceLength: 64, MicroBatch: 1, Layout: millrace.Packed}
	for step, whole := range wholes {
		a, b := first[step], second[step]
		if a == nil || b == nil {
			t.Fatalf("step %d was not sent to every host", step)
		}
		for _, p := range []*millrace.Plan{a, b} {
			if err := seal.VerifyHeld(p, shape); err != nil {
				t.Errorf("step %d: %v", step, err)
			}
			if p.Placement != whole.Placement || p.Content != whole.Content || p.Last != whole.Last {
				t.Errorf("step %d: a part has other digests than the plan", step)
			}
		}
		if !slices.Equal(append(slices.Clone(a.Assignments), b.Assignments...), whole.Assignments) {
			t.Errorf("step %d: the segments of both hosts are not those of the plan", step)
		}
		if firstStates[step] != states[step] || secondStates[step] != states[step] {
			t.Errorf("step %d: a part has another state", step)
		}
		if !bytes.Equal(bodies[step], same[step]) || len(same[step]) == 0 || &bodies[step][0] != &same[step][0] {
			t.Errorf("step %d: hosts with the same ranks do not share one encoded part", step)
		}
	}
}

// TestAHostThatComesBackGetsItsPartsAgain: from the watermark on, also from a new orchestrator.
func TestAHostThatComesBackGetsItsPartsAgain(t *testing.T) {
	for _, isRestarted := range []bool{false, true} {
		w := newWorld(t, 2)
		w.connect()
		host := &box{}
		up := func() {
			w.m.SidecarUp(host, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1", Parts: []uint32{1}})
			w.turn()
		}
		up()
		w.joinAll("fresh", nil)
		w.consume(2)
		if isRestarted {
			w.restart()
			w.connect()
		} else {
			w.m.SidecarDown(host, "sidecar-1")
		}
		host = &box{}
		up()
		plans, bodies, _ := sentPlans(t, host)
		if len(plans) < 3 || len(bodies) != len(plans) || plans[w.m.s.Watermark] == nil {
			t.Errorf("restarted %t: it got %d plans, %d in parts, from step %d on", isRestarted, len(plans),
				len(bodies), w.m.s.Watermark)
		}
		for step, p := range plans {
			if len(p.Held) != 1 || p.Held[0] != 1 || len(p.Assignments) == 0 {
				t.Errorf("step %d has the ranks %d", step, p.Held)
			}
		}
	}
}
