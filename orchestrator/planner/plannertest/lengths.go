package plannertest

import (
	"math"
	"math/rand/v2"
)

// lengths draws document lengths from lognormal mixtures: web, code, papers, books.
type lengths struct{ rng *rand.Rand }

func newLengths(seed uint64) *lengths { return &lengths{rand.New(rand.NewPCG(seed, 7))} }

// lengthClasses has the median and the sigma of each class.
var lengthClasses = [4][2]float64{{500, 1.10}, {900, 1.30}, {6000, 0.70}, {60000, 0.90}}

// next returns a length of class source%4.
func (l *lengths) next(source int) uint32 {
	c := lengthClasses[source%4]
	return uint32(min(max(c[0]*math.Exp(c[1]*l.rng.NormFloat64()), 1), 1e6))
}
