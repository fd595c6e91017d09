package workload

import (
	"math"
	"math/rand/v2"

	"millrace"
	"millrace/orchestrator/planner"
)

// Pictures is one endless source. Six of ten documents have one to four images beside their text, at four patches a
// token.
type Pictures struct{ lengths []millrace.Lengths }

// NewPictures draws a table of the given number of documents.
func NewPictures(documents int) Pictures {
	rng := rand.New(rand.NewPCG(Seed, 11))
	draw := func(median, sigma, least, most float64) uint32 {
		return uint32(min(max(median*math.Exp(sigma*rng.NormFloat64()), least), most))
	}
	p := Pictures{make([]millrace.Lengths, documents)}
	for i := range p.lengths {
		l := &p.lengths[i]
		l.Tokens = draw(500, 1.1, 1, 4000)
		if rng.IntN(10) < 6 {
			for range 1 + rng.IntN(4) {
				l.Patches += draw(1024, .5, 64, 4096)
			}
			l.Tokens += l.Patches / 4
		}
	}
	return p
}

// Peek implements planner.Offers. Every document is ready.
func (p Pictures) Peek(_ int, o millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	return millrace.SampleMeta{Ordinal: o, Lengths: p.lengths[int(o)%len(p.lengths)]}, planner.Ready
}
