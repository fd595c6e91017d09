package seal

import (
	"encoding/binary"
	"fmt"
	"slices"

	"millrace"
)

// The first byte of every hashed value. It makes the digests of leaves, nodes and roots distinct.
const (
	leafTag = 0x00
	nodeTag = 0x01
	rootTag = 0x02
)

// Placement returns the leaves of a step's placement, rank-major, and their root. The caller stores both in the plan.
// Assignments must be ordered by (rank, microbatch, row, start), as in every plan.
func Placement(p *millrace.Plan, shape millrace.Shape) (leaves []millrace.Digest, root millrace.Digest) {
	leaves = make([]millrace.Digest, int(p.Ranks)*int(p.Microbatches))
	hashLeaves(leaves, p, func(i int) millrace.Rank { return millrace.Rank(i) })
	return leaves, rootOf(p, shape, merkle(leaves))
}

// hashLeaves computes the leaves of the ranks that rankAt numbers, in ascending order. It returns the assignments after
// the last of these ranks' or before one of another rank.
func hashLeaves(leaves []millrace.Digest, p *millrace.Plan, rankAt func(i int) millrace.Rank) []millrace.Assignment {
	rest := p.Assignments
	each(leaves, func(b []byte, i int) []byte {
		r, m := rankAt(i/int(p.Microbatches)), uint32(i)%p.Microbatches
		n := 0
		for n < len(rest) && rest[n].Rank == r && rest[n].Microbatch == m {
			n++
		}
		part := rest[:n]
		rest = rest[n:]
		return appendLeaf(b, p.Step, r, m, part)
	})
	return rest
}

// VerifyPart checks one microbatch of one rank against the plan's leaf. It reads only the plan's step, dimensions,
// leaves and the assignments of that part, so a constructor can check the part that it received. VerifyRoot checks the
// leaves. The plan may be a part that has the rank.
func VerifyPart(p *millrace.Plan, rank millrace.Rank, microbatch uint32) error {
	if err := dimensions(p); err != nil {
		return err
	}
	at, isHere := int(rank), uint32(rank) < p.Ranks
	if p.Held != nil {
		at, isHere = slices.BinarySearch(p.Held, rank)
	}
	if !isHere || microbatch >= p.Microbatches {
		return millrace.Errorf(millrace.ErrMismatch,
			"verify step %s: rank %d microbatch %d lies outside %s × %d microbatches", p.Step, rank, microbatch,
			ranksOf(p), p.Microbatches)
	}
	want := p.Leaves[at*int(p.Microbatches)+int(microbatch)]
	part := p.Part(rank, microbatch)
	leaf := make([]byte, 0, leafHead+leafSegment*len(part))
	got := newHasher().digest(appendLeaf(leaf, p.Step, rank, microbatch, part))
	if got != want {
		return wrongLeaf(p, rank, microbatch, got, want)
	}
	return nil
}

func wrongLeaf(p *millrace.Plan, rank millrace.Rank, microbatch uint32, got, want millrace.Digest) error {
	return millrace.Errorf(millrace.ErrMismatch,
		"verify step %s rank %d microbatch %d: its %d segments have digest %s, the plan says %s", p.Step, rank,
		microbatch, len(p.Part(rank, microbatch)), got, want)
}

// VerifyRoot checks that the plan's placement digest is the root of its leaves under this shape. The leaves of a part
// lead to the root with the part's proof.
func VerifyRoot(p *millrace.Plan, shape millrace.Shape) error {
	if err := dimensions(p); err != nil {
		return err
	}
	top := millrace.Digest{}
	if p.Held == nil {
		top = merkle(p.Leaves)
	} else {
		var isComplete bool
		if top, isComplete = climb(p); !isComplete {
			return millrace.Errorf(millrace.ErrMismatch, "verify step %s: a proof of %d digests does not fit %s of %d",
				p.Step, len(p.Proof), ranksOf(p), p.Ranks)
		}
	}
	if got := rootOf(p, shape, top); got != p.Placement {
		return millrace.Errorf(millrace.ErrMismatch, "verify step %s: the leaves of %s have root %s, the plan says %s",
			p.Step, ranksOf(p), got, p.Placement)
	}
	return nil
}

// VerifyHeld checks a part of a plan completely: its assignments are those of its leaves, and these lead to the plan's
// placement digest.
func VerifyHeld(p *millrace.Plan, shape millrace.Shape) error {
	if err := VerifyRoot(p, shape); err != nil {
		return err
	}
	got := make([]millrace.Digest, len(p.Leaves))
	rest := hashLeaves(got, p, func(i int) millrace.Rank { return p.Held[i] })
	for i := range got {
		if got[i] != p.Leaves[i] {
			return wrongLeaf(p, p.Held[i/int(p.Microbatches)], uint32(i)%p.Microbatches, got[i], p.Leaves[i])
		}
	}
	if len(rest) > 0 {
		return millrace.Errorf(millrace.ErrMismatch,
			"verify step %s: a segment of rank %d microbatch %d lies outside %s × %d microbatches, or is out of order",
			p.Step, rest[0].Rank, rest[0].Microbatch, ranksOf(p), p.Microbatches)
	}
	return nil
}

func dimensions(p *millrace.Plan) error {
	want := uint64(p.Ranks) * uint64(p.Microbatches)
	if p.Held != nil {
		for i, r := range p.Held {
			if uint32(r) >= p.Ranks || i > 0 && r <= p.Held[i-1] {
				return millrace.Errorf(millrace.ErrMismatch, "verify step %s: its part has %s, the plan has %d ranks",
					p.Step, ranksOf(p), p.Ranks)
			}
		}
		want = uint64(len(p.Held)) * uint64(p.Microbatches)
	}
	if uint64(len(p.Leaves)) != want || want == 0 {
		return millrace.Errorf(millrace.ErrMismatch, "verify step %s: %d leaves for %s × %d microbatches", p.Step,
			len(p.Leaves), ranksOf(p), p.Microbatches)
	}
	return nil
}

// ranksOf names the ranks that a plan has, for messages.
func ranksOf(p *millrace.Plan) string {
	if p.Held == nil {
		return fmt.Sprintf("%d ranks", p.Ranks)
	}
	return fmt.Sprintf("the ranks %d", p.Held)
}

func rootOf(p *millrace.Plan, shape millrace.Shape, top millrace.Digest) millrace.Digest {
	buf := []byte{rootTag}
	buf = binary.LittleEndian.AppendUint64(buf, uint64(p.Step))
	buf = binary.LittleEndian.AppendUint32(buf, p.Ranks)
	buf = binary.LittleEndian.AppendUint32(buf, p.Microbatches)
	buf = binary.LittleEndian.AppendUint32(buf, shape.MicroBatch)
	buf = binary.LittleEndian.AppendUint32(buf, shape.SequenceLength)
	buf = append(buf, shape.Layout...)
	buf = append(buf, 0)
	return newHasher().digest(append(buf, top[:]...))
}

// leafHead and leafSegment are the bytes of a leaf and of each of its segments, at most.
const (
	leafHead    = 21
	leafSegment = 61
)

func appendLeaf(b []byte, step millrace.Step, rank millrace.Rank, microbatch uint32,
	part []millrace.Assignment) []byte {
	le := binary.LittleEndian
	b = append(b, leafTag)
	b = le.AppendUint64(b, uint64(step))
	b = le.AppendUint32(b, uint32(rank))
	b = le.AppendUint32(b, microbatch)
	b = le.AppendUint32(b, uint32(len(part)))
	for i := range part {
		a := &part[i]
		b = le.AppendUint32(b, a.Source)
		b = le.AppendUint64(b, uint64(a.Ordinal))
		b = le.AppendUint32(b, uint32(a.Epoch))
		b = le.AppendUint32(b, a.ID.Shard)
		b = le.AppendUint64(b, a.ID.Record)
		b = le.AppendUint32(b, a.Offset)
		b = le.AppendUint32(b, a.Length)
		b = append(b, flags(a))
		b = le.AppendUint32(b, a.Row)
		b = le.AppendUint32(b, a.Start)
		if sliced(a) {
			b = le.AppendUint32(b, a.Part)
			b = le.AppendUint32(b, a.Parts)
			b = le.AppendUint32(b, a.Holder)
		}
		if a.Patches != 0 {
			b = le.AppendUint32(b, a.Patches)
		}
	}
	return b
}

// The flags of an assignment in a leaf.
const (
	moreFlag    = 1
	slicedFlag  = 2 // part, parts and holder follow
	patchesFlag = 4 // patches follow
)

func flags(a *millrace.Assignment) (b byte) {
	if a.More {
		b |= moreFlag
	}
	if sliced(a) {
		b |= slicedFlag
	}
	if a.Patches != 0 {
		b |= patchesFlag
	}
	return b
}

func sliced(a *millrace.Assignment) bool { return a.Part != 0 || a.Parts != 0 || a.Holder != 0 }
