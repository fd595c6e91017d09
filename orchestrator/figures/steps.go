package figures

import pb "millrace/proto"

// steps has the fill and the balance of the newest steps.
type steps struct {
	fill      float64
	predicted float64
	reported  float64

	open  map[uint64]map[uint32]float64 // by step: the seconds that each rank reported
	ranks int                           // data-parallel ranks of the newest step
}

// mostOpen bounds the steps whose reports are gathered.
const mostOpen = 64

func newSteps() steps { return steps{open: map[uint64]map[uint32]float64{}} }

// Sealed observes a sealed step. A document of n tokens costs linear·n + quadratic·n².
func (b *Board) Sealed(p *pb.Plan, linear, quadratic uint64) {
	s := &b.steps
	a := p.Assignments
	var tokens uint64
	cost := make([]float64, p.Ranks)
	for i, n := range a.GetLength() {
		if i < len(a.Parts) && a.Parts[i] > 1 {
			n /= a.Parts[i]
		}
		tokens += uint64(n)
		cost[a.Rank[i]] += float64(linear)*float64(n) + float64(quadratic)*float64(n)*float64(n)
	}
	s.ranks = int(p.Ranks)
	if room := uint64(p.Ranks) * uint64(p.Microbatches) * uint64(p.MicroBatch) * uint64(p.SequenceLength); room > 0 {
		s.fill = float64(tokens) / float64(room)
	}
	s.predicted = imbalance(cost)
}

// imbalance returns the largest number by the mean, 0 for no numbers.
func imbalance(of []float64) float64 {
	sum, most := 0.0, 0.0
	for _, x := range of {
		sum, most = sum+x, max(most, x)
	}
	if sum <= 0 {
		return 0
	}
	return most * float64(len(of)) / sum
}

// Reported observes the times of microbatches that a rank reported. The balance of a step is known once all ranks have
// reported the step.
func (b *Board) Reported(r *pb.Reported) {
	if len(r.Seconds) == 0 {
		return
	}
	s := &b.steps
	of := s.open[r.Step]
	if of == nil {
		if len(s.open) >= mostOpen {
			clear(s.open)
		}
		of = map[uint32]float64{}
		s.open[r.Step] = of
	}
	for _, x := range r.Seconds {
		of[r.Rank] += x
	}
	if len(of) < s.ranks {
		return
	}
	times := make([]float64, 0, len(of))
	for _, x := range of {
		times = append(times, x)
	}
	s.reported = imbalance(times)
	delete(s.open, r.Step)
}
