package baseline

import (
	"math"
	"math/rand/v2"
	"slices"
)

// IID draws each source at random.
type IID struct {
	Weights []float64
	Rand    *rand.Rand
}

// Next returns the next source.
func (c *IID) Next([]int64) int {
	x := c.Rand.Float64()
	for i, w := range c.Weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(c.Weights) - 1
}

// Place does nothing.
func (c *IID) Place(int, int64) {}

// Greedy draws the source that is furthest behind its target. After n draws, the target is (n+ahead)·weight.
type Greedy struct {
	weights, placed []float64
	n, ahead        float64
}

// NewGreedy returns the rule of Megatron-LM's helpers.cpp with ahead 0, and smooth weighted round-robin with ahead 1.
func NewGreedy(weights []float64, ahead float64) *Greedy {
	return &Greedy{weights: weights, placed: make([]float64, len(weights)), ahead: ahead}
}

// Next returns the next source.
func (c *Greedy) Next([]int64) int {
	best, most := 0, math.Inf(-1)
	at := c.n + c.ahead
	if c.ahead == 0 {
		at = max(at, 1) // as in helpers.cpp
	}
	for i, w := range c.weights {
		if behind := at*w - c.placed[i]; behind > most {
			best, most = i, behind
		}
	}
	return best
}

// Place counts a draw.
func (c *Greedy) Place(i int, _ int64) {
	c.placed[i]++
	c.n++
}

// Scaled is the formula of Grain's mix.py. It truncates weight·100/least weight to integers, and divides the index of a
// draw among the sources one after the other in these proportions.
type Scaled struct {
	parts  []int64
	n      int64
	counts []int64
}

// NewScaled returns the rule for some weights.
func NewScaled(weights []float64) *Scaled {
	c := &Scaled{counts: make([]int64, len(weights))}
	least := slices.Min(weights)
	for _, w := range weights {
		c.parts = append(c.parts, int64(w*100/least))
	}
	return c
}

// Next returns the next source, and counts the draw.
func (c *Scaled) Next([]int64) int {
	c.n++
	left, rest := c.n, int64(0)
	for _, p := range c.parts {
		rest += p
	}
	for i, p := range c.parts {
		count := left
		if i < len(c.parts)-1 {
			count = (left*p + rest/2) / rest
		}
		if count > c.counts[i] {
			c.counts[i]++
			return i
		}
		left, rest = left-c.counts[i], rest-p
	}
	return len(c.parts) - 1
}

// Place does nothing.
func (c *Scaled) Place(int, int64) {}
