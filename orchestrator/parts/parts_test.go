package parts

import (
	"math/rand/v2"
	"slices"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/seal"
	"millrace/internal/wire"
	pb "millrace/proto"
)

var shape = millrace.Shape{SequenceLength: 64, MicroBatch: 2, Layout: millrace.Packed}

// random returns a sealed plan with up to four segments in each microbatch. sliced: some are slices of documents.
func random(rng *rand.Rand, ranks, microbatches uint32, sliced bool) *pb.Plan {
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 2, Step: 9, Term: 3, Ranks: ranks, Microbatches: microbatches,
		SequenceLength: 64, MicroBatch: 2, Last: true, Content: millrace.Digest{7}}
	for r := range ranks {
		for m := range microbatches {
			for i := range rng.Uint32N(5) {
				a := millrace.Assignment{
					Segment: millrace.Segment{Source: i, Ordinal: millrace.Ordinal(rng.Uint32()),
						Length: 1 + rng.Uint32N(60), More: rng.IntN(3) == 0,
						ID: millrace.SampleID{Shard: i, Record: rng.Uint64N(1 << 40)}},
					Rank: millrace.Rank(r), Microbatch: m, Row: i,
				}
				if sliced && i > 2 {
					a.Parts, a.Part, a.Holder = 2, rng.Uint32N(2), rng.Uint32N(3)
				}
				p.Assignments = append(p.Assignments, a)
			}
		}
	}
	p.Leaves, p.Placement = seal.Placement(p, shape)
	return wire.PlanToProto(p, []byte(`{"step":10}`))
}

func part(t *testing.T, c *Cutter, whole *pb.Plan, ranks []uint32) *millrace.Plan {
	t.Helper()
	body, err := c.Part(whole, ranks)
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.Plan{}
	if err := pbuf.Unmarshal(body, m); err != nil {
		t.Fatal(err)
	}
	if string(m.State) != string(whole.State) {
		t.Errorf("the state is %s", m.State)
	}
	out, err := wire.PlanFromProto(m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPartsTogetherAreThePlan: for random plans and hosts, also hosts whose ranks are no neighbours.
func TestPartsTogetherAreThePlan(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 100 {
		ranks, hosts := 1+rng.Uint32N(40), 1+rng.IntN(6)
		p := random(rng, ranks, 1+rng.Uint32N(4), round%2 == 0)
		whole, err := wire.PlanFromProto(p)
		if err != nil {
			t.Fatal(err)
		}
		of := make([][]uint32, hosts)
		for r := range ranks {
			host := rng.IntN(hosts)
			if round%3 == 0 {
				host = int(r) * hosts / int(ranks)
			}
			of[host] = append(of[host], r)
		}
		c, labels := NewCutter(), uint64(0)
		var all []millrace.Assignment
		for i := range whole.Assignments {
			if a := &whole.Assignments[i]; a.Part == 0 && a.More {
				labels += uint64(a.Length)
			} else if a.Part == 0 {
				labels += uint64(a.Length) - 1
			}
		}
		for _, ranks := range of {
			if len(ranks) == 0 {
				continue
			}
			got := part(t, c, p, ranks)
			if err := seal.VerifyHeld(got, shape); err != nil {
				t.Fatal(err)
			}
			all = append(all, got.Assignments...)
			if got.Labels != labels {
				t.Errorf("%d labels, want %d", got.Labels, labels)
			}
			got.Assignments, got.Leaves, got.Held = whole.Assignments, whole.Leaves, nil
			if err := seal.VerifyRoot(got, shape); err != nil || got.Step != 9 || !got.Last || got.Content[0] != 7 ||
				got.Attempt != 2 || got.Term != 3 {
				t.Errorf("another head than the plan's: %+v, %v", got, err)
			}
		}
		slices.SortStableFunc(all, func(a, b millrace.Assignment) int { return int(a.Rank) - int(b.Rank) })
		if !slices.Equal(all, whole.Assignments) {
			t.Fatalf("%d hosts get %d segments together, the plan has %d", hosts, len(all), len(whole.Assignments))
		}
	}
}

// TestRanksBeyondThePlanHaveNoPart: the plan is of an attempt with fewer ranks.
func TestRanksBeyondThePlanHaveNoPart(t *testing.T) {
	p := random(rand.New(rand.NewPCG(1, 2)), 4, 2, false)
	if got := part(t, NewCutter(), p, []uint32{3, 4, 5}).Held; !slices.Equal(got, []millrace.Rank{3}) {
		t.Errorf("the part has the ranks %d", got)
	}
	if body, err := NewCutter().Part(p, []uint32{4, 5}); body != nil || err != nil {
		t.Errorf("a part without ranks: %d bytes, %v", len(body), err)
	}
}

// TestAnotherPlanOfAStepHasItsOwnTree: a new attempt plans the step again.
func TestAnotherPlanOfAStepHasItsOwnTree(t *testing.T) {
	rng, c := rand.New(rand.NewPCG(3, 4)), NewCutter()
	for range 2 {
		if err := seal.VerifyHeld(part(t, c, random(rng, 8, 2, false), []uint32{2, 3}), shape); err != nil {
			t.Fatal(err)
		}
	}
	c.Forget(9)
	if len(c.wholes) != 1 {
		t.Errorf("step 9 was forgotten below step 9")
	}
	c.Forget(10)
	if len(c.wholes) != 0 {
		t.Errorf("%d trees are kept", len(c.wholes))
	}
}
