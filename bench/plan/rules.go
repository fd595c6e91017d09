package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// The rules of apportionment that the mixture is compared with: none of the product's code.

// iid draws by chance.
type iid struct {
	weights []float64
	rng     *rand.Rand
}

func (c *iid) next([]int64) int {
	x := c.rng.Float64()
	for i, w := range c.weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(c.weights) - 1
}
func (c *iid) place(int, int64) {}

// greedy takes the source that is most behind: of n·w with ahead 0, as Megatron-LM's helpers.cpp does, of (n+1)·w with ahead 1: smooth weighted round-robin.
type greedy struct {
	weights, placed []float64
	n, ahead        float64
}

func newGreedy(weights []float64, ahead float64) *greedy {
	return &greedy{weights: weights, placed: make([]float64, len(weights)), ahead: ahead}
}

func (c *greedy) next([]int64) int {
	best, most := 0, math.Inf(-1)
	at := c.n + c.ahead
	if c.ahead == 0 {
		at = max(at, 1) // as helpers.cpp has it
	}
	for i, w := range c.weights {
		if behind := at*w - c.placed[i]; behind > most {
			best, most = i, behind
		}
	}
	return best
}

func (c *greedy) place(i int, _ int64) {
	c.placed[i]++
	c.n++
}

// scaled is the formula of Grain's mix.py: proportions become integers by 100/min, truncated; source by source, of what is left of the index its part.
type scaled struct {
	parts  []int64
	n      int64
	counts []int64
}

func newScaled(weights []float64) *scaled {
	c := &scaled{counts: make([]int64, len(weights))}
	least := slices.Min(weights)
	for _, w := range weights {
		c.parts = append(c.parts, int64(w*100/least))
	}
	return c
}

func (c *scaled) next([]int64) int {
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
func (c *scaled) place(int, int64) {}
