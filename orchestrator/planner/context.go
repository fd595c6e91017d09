package planner

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

// fitted returns what the backbone spends on a segment of a step that holds these.
func fitted(part []millrace.Assignment, cost Cost) func(*millrace.Segment) uint64 {
	var size extent
	for i := range part {
		size.add(&part[i].Segment)
	}
	weigh := cost.fit(size)
	return func(s *millrace.Segment) uint64 {
		_, backbone := weigh.of(s)
		return backbone
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

// WeighContext returns how much dearer than the mean the dearest context-parallel rank of cp is: over all microbatches of a plan that
// documents are padded to pad tokens in, and in the worst of them, in millionths. Padding costs what a document of its own does: matrix
// products run over it, attention does not. Where a trainer's attention runs over it too, the ranks of sliced documents are even to the last
// operation.
func WeighContext(plan *millrace.Plan, cost Cost, cp int, pad uint32) (all, worst uint64) {
	weigh := fitted(plan.Assignments, cost)
	of := func(tokens uint32) uint64 { return weigh(&millrace.Segment{Length: tokens}) }
	total, dearest := uint64(0), uint64(0)
	for rest := plan.Assignments; len(rest) > 0; {
		first, load := &rest[0], make([]uint64, cp)
		for len(rest) > 0 && rest[0].Rank == first.Rank && rest[0].Microbatch == first.Microbatch {
			sliceCosts(load, &rest[0], pad, of)
			rest = rest[1:]
		}
		sum := uint64(0)
		for _, l := range load {
			sum += l
		}
		most := slices.Max(load)
		total, dearest = total+sum, dearest+most
		if sum > 0 {
			worst = max(worst, mulDiv(most, 1_000_000*uint64(cp), sum)-1_000_000)
		}
	}
	if total > 0 {
		all = mulDiv(dearest, 1_000_000*uint64(cp), total) - 1_000_000
	}
	return all, worst
}

// sliceCosts adds to each rank's load what its part of a document costs: the chunks at both ends, a token the dearer the more are before it.
func sliceCosts(load []uint64, a *millrace.Assignment, pad uint32, of func(uint32) uint64) {
	if a.Holder > 0 {
		load[a.Holder-1] += of(a.Length) + of(a.Columns(pad)-a.Length)
		return
	}
	chunk := a.Columns(pad) / uint32(2*len(load))
	chunks := uint32(2*len(load)) * max(a.Parts, 1)
	for c := range load {
		first := a.Part*uint32(len(load)) + uint32(c)
		for _, number := range [2]uint32{first, chunks - 1 - first} {
			from, to := min(number*chunk, a.Length), min((number+1)*chunk, a.Length)
			load[c] += of(to) - of(from) + of(chunk-(to-from))
		}
	}
}
