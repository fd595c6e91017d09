package seal

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
)

// cut returns the part of a plan for some ranks, as a sidecar receives it.
func cut(p *millrace.Plan, ranks []millrace.Rank) *millrace.Plan {
	out := *p
	out.Held, out.Proof = ranks, NewTree(p.Leaves).Prove(ranks, p.Microbatches)
	out.Leaves, out.Assignments = nil, nil
	for _, r := range ranks {
		out.Leaves = append(out.Leaves, p.Leaves[uint32(r)*p.Microbatches:][:p.Microbatches]...)
		for m := range p.Microbatches {
			out.Assignments = append(out.Assignments, p.Part(r, m)...)
		}
	}
	return &out
}

// dumbProof is Prove by definition: a node is known if the part has a leaf below it.
func dumbProof(leaves []millrace.Digest, has func(leaf int) bool) (proof []millrace.Digest) {
	known := make([]bool, len(leaves))
	for i := range known {
		known[i] = has(i)
	}
	for level := slices.Clone(leaves); len(level) > 1; {
		var next []millrace.Digest
		var nextKnown []bool
		for i := 0; i < len(level); i += 2 {
			if i+1 == len(level) {
				next, nextKnown = append(next, level[i]), append(nextKnown, known[i])
				continue
			}
			switch {
			case known[i] && !known[i+1]:
				proof = append(proof, level[i+1])
			case !known[i] && known[i+1]:
				proof = append(proof, level[i])
			}
			message := append([]byte{nodeTag}, append(level[i][:], level[i+1][:]...)...)
			next = append(next, newHasher().digest(message))
			nextKnown = append(nextKnown, known[i] || known[i+1])
		}
		level, known = next, nextKnown
	}
	return proof
}

func ranksBetween(from, to uint32) (out []millrace.Rank) {
	for r := from; r < to; r++ {
		out = append(out, millrace.Rank(r))
	}
	return out
}

// TestEveryRangeOfSmallTreesIsProved: the part is accepted, its proof is the one by definition, and a range takes at
// most two digests a level.
func TestEveryRangeOfSmallTreesIsProved(t *testing.T) {
	for ranks := uint32(1); ranks <= 17; ranks++ {
		for _, microbatches := range []uint32{1, 2, 3, 5} {
			p, shape := testPlan(ranks, microbatches)
			for from := range ranks {
				for to := from + 1; to <= ranks; to++ {
					part := cut(p, ranksBetween(from, to))
					if err := VerifyHeld(part, shape); err != nil {
						t.Fatalf("%d ranks, %d to %d: %v", ranks, from, to, err)
					}
					want := dumbProof(p.Leaves, func(i int) bool {
						r := uint32(i) / microbatches
						return from <= r && r < to
					})
					if !slices.Equal(part.Proof, want) {
						t.Fatalf("%d ranks × %d: ranks %d to %d have another proof", ranks, microbatches, from, to)
					}
					if most := 2 * bits.Len(uint(len(p.Leaves))); len(want) > most {
						t.Fatalf("%d ranks, %d to %d: %d digests, at most %d", ranks, from, to, len(want), most)
					}
				}
			}
		}
	}
}

// TestAnySetOfRanksIsProved: the ranks of a host need not be neighbours along the data-parallel axis.
func TestAnySetOfRanksIsProved(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 60 {
		ranks, microbatches := 1+rng.Uint32N(300), 1+rng.Uint32N(9)
		p, shape := testPlan(ranks, microbatches)
		var some []millrace.Rank
		for r := range ranks {
			if rng.IntN(4) == 0 {
				some = append(some, millrace.Rank(r))
			}
		}
		if len(some) == 0 {
			some = ranksBetween(0, 1)
		}
		part := cut(p, some)
		if err := VerifyHeld(part, shape); err != nil {
			t.Fatal(err)
		}
		for _, r := range some {
			if err := VerifyPart(part, r, rng.Uint32N(microbatches)); err != nil {
				t.Fatal(err)
			}
		}
		want := dumbProof(p.Leaves, func(i int) bool {
			return slices.Contains(some, millrace.Rank(uint32(i)/microbatches))
		})
		if !slices.Equal(part.Proof, want) {
			t.Fatalf("%d of %d ranks: another proof than by definition", len(some), ranks)
		}
	}
}

// TestEveryFlippedBitOfAPartIsRefused: in its leaves, its proof, the digest of the placement, and in what the digest
// covers.
func TestEveryFlippedBitOfAPartIsRefused(t *testing.T) {
	p, shape := testPlan(13, 3)
	for _, ranks := range [][]millrace.Rank{ranksBetween(4, 8), ranksBetween(12, 13), {0, 5, 6, 12}} {
		refused := func(what string, change func(*millrace.Plan)) {
			t.Helper()
			part := cut(p, ranks)
			part.Leaves, part.Assignments = slices.Clone(part.Leaves), slices.Clone(part.Assignments)
			change(part)
			if err := VerifyHeld(part, shape); !errors.Is(err, millrace.ErrMismatch) {
				t.Errorf("ranks %d, %s: accepted (%v)", ranks, what, err)
			}
		}
		flip := func(digests func(*millrace.Plan) []millrace.Digest) {
			for i := range digests(cut(p, ranks)) {
				for bit := range 128 {
					refused("a flipped bit", func(p *millrace.Plan) { digests(p)[i][bit/8] ^= 1 << (bit % 8) })
				}
			}
		}
		flip(func(p *millrace.Plan) []millrace.Digest { return p.Leaves })
		flip(func(p *millrace.Plan) []millrace.Digest { return p.Proof })
		for name, change := range map[string]func(*millrace.Plan){
			"segment":        func(p *millrace.Plan) { p.Assignments[0].Ordinal ^= 1 },
			"more":           func(p *millrace.Plan) { p.Assignments[0].More = !p.Assignments[0].More },
			"first left out": func(p *millrace.Plan) { p.Assignments = p.Assignments[1:] },
			"last left out":  func(p *millrace.Plan) { p.Assignments = p.Assignments[:len(p.Assignments)-1] },
			"disorder": func(p *millrace.Plan) {
				last := len(p.Assignments) - 1
				p.Assignments[0], p.Assignments[last] = p.Assignments[last], p.Assignments[0]
			},
			"twice":             func(p *millrace.Plan) { p.Assignments = append(p.Assignments, p.Assignments[0]) },
			"digest":            func(p *millrace.Plan) { p.Placement[3] ^= 16 },
			"step":              func(p *millrace.Plan) { p.Step++ },
			"short proof":       func(p *millrace.Plan) { p.Proof = p.Proof[1:] },
			"long proof":        func(p *millrace.Plan) { p.Proof = append(p.Proof, millrace.Digest{}) },
			"another rank":      func(p *millrace.Plan) { p.Held = append(slices.Clone(ranks[1:]), 13) },
			"ranks in disorder": func(p *millrace.Plan) { p.Held = append(slices.Clone(ranks), ranks[0]) },
			"no ranks":          func(p *millrace.Plan) { p.Held, p.Leaves = nil, nil },
			"a leaf less":       func(p *millrace.Plan) { p.Leaves = p.Leaves[1:] },
			"fewer ranks":       func(p *millrace.Plan) { p.Ranks-- },
		} {
			refused(name, change)
		}
	}
	part := cut(p, ranksBetween(4, 8))
	part.Assignments[2].Length++
	const want = "verify step 5 rank 4 microbatch 1: its 2 segments have digest "
	if err := VerifyHeld(part, shape); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
	if err := VerifyPart(part, 3, 0); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("a rank that the part does not have: %v", err)
	}
}
