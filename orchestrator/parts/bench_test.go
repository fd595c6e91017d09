package parts

import (
	"fmt"
	"math/rand/v2"
	"testing"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/seal"
	"millrace/internal/wire"
	pb "millrace/proto"
)

// web returns a sealed plan with the lengths of web documents: about 800 tokens a document, rows of 2,048 tokens, and
// one row a microbatch.
func web(ranks, microbatches uint32) *pb.Plan {
	rng := rand.New(rand.NewPCG(9, 9))
	p := &millrace.Plan{Stream: millrace.Train, Attempt: 1, Step: 41200, Term: 3, Ranks: ranks,
		Microbatches: microbatches, SequenceLength: 2048, MicroBatch: 1}
	for r := range ranks {
		for m := range microbatches {
			for at := uint32(0); at < 2048; {
				length := min(uint32(rng.ExpFloat64()*800)+1, 2048-at)
				segment := millrace.Segment{Source: rng.Uint32N(300), Length: length,
					Ordinal: millrace.Ordinal(50_000_000 + rng.Uint64N(1<<20)),
					ID:      millrace.SampleID{Shard: rng.Uint32N(100), Record: rng.Uint64N(1 << 20)}}
				p.Assignments = append(p.Assignments,
					millrace.Assignment{Segment: segment, Rank: millrace.Rank(r), Microbatch: m, Start: at})
				at += length
			}
		}
	}
	p.Leaves, p.Placement = seal.Placement(p, shape)
	return wire.PlanToProto(p, make([]byte, 16<<10))
}

// BenchmarkPartsOfHosts cuts and encodes the parts of a plan for all hosts, which have eight ranks each. It reports the
// bytes of the whole plan, of the largest part, and of its proof and its leaves, all without the run's state of 16 KiB.
func BenchmarkPartsOfHosts(b *testing.B) {
	for _, c := range []struct{ ranks, microbatches uint32 }{{64, 8}, {512, 1}, {512, 4}, {4096, 1}, {4096, 4}} {
		b.Run(fmt.Sprintf("ranks=%d/sequences=%d", c.ranks, c.ranks*c.microbatches), func(b *testing.B) {
			p := web(c.ranks, c.microbatches)
			state := len(p.State)
			largest, proof := 0, 0
			for b.Loop() {
				cutter := NewCutter()
				for first := uint32(0); first < c.ranks; first += 8 {
					ranks := make([]uint32, 8)
					for i := range ranks {
						ranks[i] = first + uint32(i)
					}
					body, err := cutter.Part(p, ranks)
					if err != nil {
						b.Fatal(err)
					}
					if len(body) > largest {
						m := &pb.Plan{}
						if err := pbuf.Unmarshal(body, m); err != nil {
							b.Fatal(err)
						}
						largest, proof = len(body), len(m.Held.Proof)
					}
				}
			}
			b.ReportMetric(float64(pbuf.Size(p)-state), "plan-B")
			b.ReportMetric(float64(largest-state), "part-B")
			b.ReportMetric(float64(proof), "proof-B")
			b.ReportMetric(float64(16*8*c.microbatches), "leaves-B")
		})
	}
}
