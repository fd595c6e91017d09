package seal

import (
	"slices"

	"millrace"
)

// Tree is the Merkle tree over the leaves of a step's placement. It proves that a part's leaves are leaves of the tree.
type Tree struct {
	levels [][]millrace.Digest // from the leaves to the top
}

// NewTree returns the tree over a plan's leaves, which must not change afterwards. There is at least one.
func NewTree(leaves []millrace.Digest) Tree {
	t := Tree{levels: [][]millrace.Digest{leaves}}
	for level := leaves; len(level) > 1; {
		level = above(make([]millrace.Digest, (len(level)+1)/2), level)
		t.levels = append(t.levels, level)
	}
	return t
}

// Prove returns the digests that lead from the leaves of some ranks to the top: of each level from below, and from left
// to right, the unknown neighbours of known nodes. Ranks ascend, and each has microbatches leaves. A range of ranks
// takes at most two digests a level.
func (t Tree) Prove(ranks []millrace.Rank, microbatches uint32) (proof []millrace.Digest) {
	known := places(ranks, microbatches)
	for _, level := range t.levels[:len(t.levels)-1] {
		up := known[:0]
		for i := 0; i < len(known); i++ {
			at := known[i]
			switch other := at ^ 1; {
			case i+1 < len(known) && known[i+1] == other:
				i++
			case other < len(level):
				proof = append(proof, level[other])
			}
			up = append(up, at/2)
		}
		known = up
	}
	return proof
}

// climb returns the top of the tree to which the leaves of a part lead with its proof. It returns false if the proof
// has too few digests or too many.
func climb(p *millrace.Plan) (top millrace.Digest, isComplete bool) {
	known, nodes := places(p.Held, p.Microbatches), slices.Clone(p.Leaves)
	h, proof, message := newHasher(), p.Proof, make([]byte, 0, 1+2*len(top))
	for n := int(p.Ranks) * int(p.Microbatches); n > 1; n = (n + 1) / 2 {
		up := 0
		for i := 0; i < len(known); i++ {
			at, node := known[i], nodes[i]
			switch other := at ^ 1; {
			case i+1 < len(known) && known[i+1] == other:
				i++
				node = h.digest(appendNode(message, &node, &nodes[i]))
			case other < n && len(proof) == 0:
				return top, false
			case other < at:
				node = h.digest(appendNode(message, &proof[0], &node))
				proof = proof[1:]
			case other < n:
				node = h.digest(appendNode(message, &node, &proof[0]))
				proof = proof[1:]
			}
			known[up], nodes[up] = at/2, node
			up++
		}
		known, nodes = known[:up], nodes[:up]
	}
	return nodes[0], len(proof) == 0
}

// places returns the numbers of the leaves of ranks.
func places(ranks []millrace.Rank, microbatches uint32) []int {
	out := make([]int, 0, len(ranks)*int(microbatches))
	for _, r := range ranks {
		for m := range int(microbatches) {
			out = append(out, int(r)*int(microbatches)+m)
		}
	}
	return out
}

// merkle returns the top of the tree over leaves.
func merkle(leaves []millrace.Digest) millrace.Digest {
	if len(leaves) == 0 {
		return millrace.Digest{}
	}
	level := slices.Clone(leaves)
	for len(level) > 1 {
		level = above(level[:(len(level)+1)/2], level)
	}
	return level[0]
}

// above computes the nodes above a level into dst and returns dst, which may begin where the level begins: a node is at
// or before its children, and each hashes a message before it writes the node.
func above(dst, level []millrace.Digest) []millrace.Digest {
	half := len(level) / 2
	each(dst[:half], func(b []byte, i int) []byte { return appendNode(b, &level[2*i], &level[2*i+1]) })
	if len(level)%2 == 1 {
		dst[half] = level[len(level)-1]
	}
	return dst
}

func appendNode(b []byte, left, right *millrace.Digest) []byte {
	b = append(b, nodeTag)
	b = append(b, left[:]...)
	return append(b, right[:]...)
}
