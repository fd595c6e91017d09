package place

import (
	"cmp"
	"slices"

	"millrace"
)

const (
	// tolerance is the part of a context-parallel rank's mean cost of a microbatch, 1/tolerance, by which documents that are whole on one
	// rank may make the dearest rank dearer.
	tolerance = 500
	// rounds is how many documents of a microbatch are sliced to that end; then all of them are.
	rounds = 32
)

// hold decides which short documents of a plan are whole on one of cp context-parallel ranks: of each microbatch's documents of at most local
// tokens as many as leave the ranks even, dealt from the dearest to the rank that has least. Where they do not come out even, the dearest
// rank's document that is nearest to what it has too much is sliced like the long ones.
func hold(part []millrace.Assignment, cp int, local uint32, weigh func(*millrace.Segment) uint64) {
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
		ranks := dealContext(short, cp)
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
		for _, k := range ranks[dearest] { // dearest first
			if short[k].cost >= over {
				slice = k
			}
		}
		short = slices.Delete(short, slice, slice+1)
	}
}

// dealContext deals documents, dearest first, each to the rank that has least; it returns each rank's, in that order.
func dealContext(short []held, cp int) [][]int {
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
