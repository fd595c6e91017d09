package overhead

import (
	"millrace"
	"millrace/orchestrator/planner/cost"
)

// Phases is a cost to the encoder and to the backbone, which begins after all ranks have finished the encoder.
type Phases [2]float64

// TwoPhases returns the cost of a segment in both phases.
func TwoPhases(c cost.Cost, s *millrace.Segment) Phases {
	p, t := float64(s.Patches), float64(s.Length)
	return Phases{
		(float64(c.Encoder.Linear) + float64(c.Encoder.Quadratic)*p) * p,
		(float64(c.Linear) + float64(c.Quadratic)*t) * t,
	}
}

// Waiting returns the overhead of ranks that wait for each other after both phases, in percent of the mean.
func Waiting(loads []Phases) float64 {
	total, slowest := 0.0, 0.0
	for phase := range 2 {
		top := 0.0
		for _, l := range loads {
			total += l[phase]
			top = max(top, l[phase])
		}
		slowest += top
	}
	return 100 * (slowest*float64(len(loads))/total - 1)
}
