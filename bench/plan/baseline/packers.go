// Package baseline has the methods that plans are compared with: packers, balancers, and rules that draw a mixture.
// They do not use the planner's packers, placement or apportionment.
package baseline

import (
	"math/bits"
	"slices"

	"millrace/bench/plan/overhead"
)

// Packing is the bin of each segment of a step. Packers take the lengths in draw order; no length exceeds a bin.
type Packing struct {
	bin  []int // by segment; noBin for a segment without a bin
	full int   // bins in use
}

const noBin = -1

// BestFitDecreasing takes the longest segment first and puts each into the fullest bin that has room. It opens
// at most limit bins; 0 means no limit.
func BestFitDecreasing(lengths []uint32, capacity uint32, limit int) Packing {
	p := Packing{bin: make([]int, len(lengths))}
	stacks := make([][]int32, capacity+1) // bins by the room that is left
	some := make([]uint64, capacity/64+1) // a bit for each stack that is not empty
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

// firstFrom returns the first bit that is set from i on.
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

// longestFirst returns the indices of the lengths, the longest first.
func longestFirst(lengths []uint32) []int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(lengths[b]) - int(lengths[a]) })
	return order
}

// NextFit puts each segment into the newest bin if it has room, else into a new one.
func NextFit(lengths []uint32, capacity uint32) Packing {
	p := Packing{bin: make([]int, len(lengths))}
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

// FirstFit puts each segment into the first bin that has room. A tree of maxima finds it.
func FirstFit(lengths []uint32, capacity uint32) Packing {
	p := Packing{bin: make([]int, len(lengths))}
	leaves := 1
	for leaves < len(lengths) {
		leaves *= 2
	}
	tree := make([]uint32, 2*leaves) // the most room of any bin below a node
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

// Fill returns the tokens in percent of the capacity of the bins in use.
func (p Packing) Fill(lengths []uint32, capacity uint32) float64 {
	sum := 0.0
	for i, l := range lengths {
		if p.bin[i] != noBin {
			sum += float64(l)
		}
	}
	return 100 * sum / float64(p.full) / float64(capacity)
}

// Concatenate lays the documents end to end over the bins and cuts them at the end of each bin. It returns the pieces,
// their packing, and the number of segments that were cut.
func Concatenate(lengths []uint32, capacity uint32) (pieces []uint32, p Packing, cut int) {
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

// Costs returns the cost of each of the first bins. Tokens in later bins and tokens without a bin are stranded; Costs
// returns their part of all tokens.
func (p Packing) Costs(lengths []uint32, m overhead.Model, bins int) (cost []float64, stranded float64) {
	cost = make([]float64, bins)
	all, lost := 0.0, 0.0
	for i, l := range lengths {
		all += float64(l)
		if b := p.bin[i]; b != noBin && b < bins {
			cost[b] += m.Of(l)
		} else {
			lost += float64(l)
		}
	}
	return cost, lost / all
}
