package place

import (
	"cmp"
	"slices"

	"millrace"
)

const (
	// Documents that are whole on one context-parallel rank may raise the most expensive rank above the mean by
	// 1/tolerance of the mean.
	tolerance = 500
	// After this number of documents of a microbatch were sliced to stay within the tolerance, all others are sliced
	// too.
	rounds = 32
)

// holdWhole decides which documents of at most local tokens are whole on one of cp context-parallel ranks. It assigns
// those of each microbatch, most expensive first, to the least loaded rank. If the ranks are uneven, it slices a
// document of the most expensive rank: the one whose cost is nearest to the excess.
func holdWhole(part []millrace.Assignment, cp int, local uint32, weigh func(*millrace.Segment) uint64) {
	for len(part) > 0 {
		n := 1
		for n < len(part) && part[n].Rank == part[0].Rank && part[n].Microbatch == part[0].Microbatch {
			n++
		}
		holdMicrobatch(part[:n], cp, local, weigh)
		part = part[n:]
	}
}

// held is a document that may be whole on one rank.
type held struct {
	at   int // in the microbatch
	cost uint64
}

func holdMicrobatch(part []millrace.Assignment, cp int, local uint32, weigh func(*millrace.Segment) uint64) {
	var short []held
	total := uint64(0)
	for i := range part {
		cost := weigh(&part[i].Segment)
		if part[i].Parts > 0 {
			cost /= uint64(part[i].Parts)
		} else if part[i].Length <= local {
			short = append(short, held{i, cost})
		}
		total += cost
	}
	slices.SortFunc(short, func(a, b held) int { return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(a.at, b.at)) })
	for round := 0; round < rounds && len(short) > 0; round++ {
		ranks := leastLoaded(short, cp)
		dearest, sum := 0, uint64(0)
		load := make([]uint64, cp)
		for r, mine := range ranks {
			for _, k := range mine {
				load[r] += short[k].cost
			}
			if sum += load[r]; load[r] > load[dearest] {
				dearest = r
			}
		}
		over := load[dearest] - sum/uint64(cp)
		if over <= total/uint64(cp)/tolerance {
			for r, mine := range ranks {
				for _, k := range mine {
					part[short[k].at].Holder = uint32(r) + 1
				}
			}
			return
		}
		slice := ranks[dearest][0]
		for _, k := range ranks[dearest] { // most expensive first
			if short[k].cost >= over {
				slice = k
			}
		}
		short = slices.Delete(short, slice, slice+1)
	}
}

// leastLoaded assigns documents, most expensive first, each to the rank with the least load. It returns the documents
// of each rank in that order.
func leastLoaded(short []held, cp int) [][]int {
	ranks, load := make([][]int, cp), make([]uint64, cp)
	for k, h := range short {
		least := 0
		for r := range load {
			if load[r] < load[least] {
				least = r
			}
		}
		ranks[least] = append(ranks[least], k)
		load[least] += h.cost
	}
	return ranks
}
