package main

import (
	"math/bits"
	"slices"
)

// The packers that plans are compared with: none of the planner's code. Lengths are in draw order, none longer than a bin.

// packed is the bin of each segment; noBin for one that found none. full is how many bins there are.
type packed struct {
	bin  []int
	full int
}

const noBin = -1

// bestFitDecreasing puts the longest segment first, each into the fullest bin that takes it. limit 0 is no limit.
func bestFitDecreasing(lengths []uint32, capacity uint32, limit int) packed {
	p := packed{bin: make([]int, len(lengths))}
	stacks := make([][]int32, capacity+1) // bins by what is left of them
	some := make([]uint64, capacity/64+1) // which stacks are not empty
	for _, i := range longestFirst(lengths) {
		l := lengths[i]
		left, ok := firstFrom(some, l)
		bin := int32(p.full)
		switch {
		case ok:
			s := stacks[left]
			bin = s[len(s)-1]
			if stacks[left] = s[:len(s)-1]; len(s) == 1 {
				some[left/64] &^= 1 << (left % 64)
			}
		case limit > 0 && p.full == limit:
			p.bin[i] = noBin
			continue
		default:
			p.full++
			left = capacity
		}
		p.bin[i] = int(bin)
		left -= l
		stacks[left] = append(stacks[left], bin)
		some[left/64] |= 1 << (left % 64)
	}
	return p
}

// firstFrom returns the first bit from i on.
func firstFrom(words []uint64, i uint32) (uint32, bool) {
	w := i / 64
	word := words[w] >> (i % 64) << (i % 64)
	for word == 0 {
		if w++; int(w) == len(words) {
			return 0, false
		}
		word = words[w]
	}
	return w*64 + uint32(bits.TrailingZeros64(word)), true
}

func longestFirst(lengths []uint32) []int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(lengths[b]) - int(lengths[a]) })
	return order
}

// nextFit puts each segment into the last bin, or opens one.
func nextFit(lengths []uint32, capacity uint32) packed {
	p := packed{bin: make([]int, len(lengths))}
	left := uint32(0)
	for i, l := range lengths {
		if l > left {
			p.full++
			left = capacity
		}
		left -= l
		p.bin[i] = p.full - 1
	}
	return p
}

// firstFit puts each segment into the first bin that takes it, found by a tree of maxima.
func firstFit(lengths []uint32, capacity uint32) packed {
	p := packed{bin: make([]int, len(lengths))}
	leaves := 1
	for leaves < len(lengths) {
		leaves *= 2
	}
	tree := make([]uint32, 2*leaves) // most that is left in any bin below
	for i := range tree {
		tree[i] = capacity
	}
	for i, l := range lengths {
		at := 1
		for at < leaves {
			at *= 2
			if tree[at] < l {
				at++
			}
		}
		p.bin[i] = at - leaves
		p.full = max(p.full, p.bin[i]+1)
		tree[at] -= l
		for at /= 2; at > 0; at /= 2 {
			tree[at] = max(tree[2*at], tree[2*at+1])
		}
	}
	return p
}

// fill is the part of the bins that holds tokens, in percent.
func (p packed) fill(lengths []uint32, capacity uint32) float64 {
	sum := 0.0
	for i, l := range lengths {
		if p.bin[i] != noBin {
			sum += float64(l)
		}
	}
	return 100 * sum / float64(p.full) / float64(capacity)
}

// concatenate lays the documents end to end over the bins and cuts them where a bin ends. It returns the pieces and how many segments were cut.
func concatenate(lengths []uint32, capacity uint32) (pieces []uint32, p packed, cut int) {
	left := uint32(0)
	for _, l := range lengths {
		begun := false
		for l > 0 {
			if left == 0 {
				p.full++
				left = capacity
				if begun {
					cut++
				}
			}
			piece := min(l, left)
			pieces, p.bin = append(pieces, piece), append(p.bin, p.full-1)
			l, left, begun = l-piece, left-piece, true
		}
	}
	return pieces, p, cut
}

// costs of the first so many bins; what lies in others, or in none, strands.
func (p packed) costs(lengths []uint32, m model, bins int) (cost []float64, stranded float64) {
	cost = make([]float64, bins)
	all, lost := 0.0, 0.0
	for i, l := range lengths {
		all += float64(l)
		if b := p.bin[i]; b != noBin && b < bins {
			cost[b] += m.of(l)
		} else {
			lost += float64(l)
		}
	}
	return cost, lost / all
}
