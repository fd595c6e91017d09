package seal

import (
	"encoding/binary"
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
	rest := p.Assignments
	each(leaves, func(b []byte, i int) []byte {
		r, m := millrace.Rank(uint32(i)/p.Microbatches), uint32(i)%p.Microbatches
		n := 0
		for n < len(rest) && rest[n].Rank == r && rest[n].Microbatch == m {
			n++
		}
		part := rest[:n]
		rest = rest[n:]
		return appendLeaf(b, p.Step, r, m, part)
	})
	return leaves, rootOf(p, shape, leaves)
}

// VerifyPart checks one microbatch of one rank against the plan's leaf. It reads only the plan's step, dimensions,
// leaves and the assignments of that part, so a constructor can check the part that it received. VerifyRoot checks the
// leaves.
func VerifyPart(p *millrace.Plan, rank millrace.Rank, microbatch uint32) error {
	if err := dimensions(p); err != nil {
		return err
	}
	if uint32(rank) >= p.Ranks || microbatch >= p.Microbatches {
		return millrace.Errorf(millrace.ErrMismatch,
			"verify step %s: rank %d microbatch %d lies outside %d ranks × %d microbatches", p.Step, rank, microbatch,
			p.Ranks, p.Microbatches)
	}
	want := p.Leaves[int(rank)*int(p.Microbatches)+int(microbatch)]
	part := p.Part(rank, microbatch)
	got := newHasher().digest(appendLeaf(make([]byte, 0, flushAt), p.Step, rank, microbatch, part))
	if got != want {
		return millrace.Errorf(millrace.ErrMismatch,
			"verify step %s rank %d microbatch %d: its %d segments have digest %s, the plan says %s", p.Step, rank,
			microbatch, len(part), got, want)
	}
	return nil
}

// VerifyRoot checks that the plan's placement digest is the root of its leaves under this shape.
func VerifyRoot(p *millrace.Plan, shape millrace.Shape) error {
	if err := dimensions(p); err != nil {
		return err
	}
	if got := rootOf(p, shape, p.Leaves); got != p.Placement {
		return millrace.Errorf(millrace.ErrMismatch, "verify step %s: its leaves have root %s, the plan says %s",
			p.Step, got, p.Placement)
	}
	return nil
}

func dimensions(p *millrace.Plan) error {
	if want := uint64(p.Ranks) * uint64(p.Microbatches); uint64(len(p.Leaves)) != want || want == 0 {
		return millrace.Errorf(millrace.ErrMismatch, "verify step %s: %d leaves for %d ranks × %d microbatches",
			p.Step, len(p.Leaves), p.Ranks, p.Microbatches)
	}
	return nil
}

func rootOf(p *millrace.Plan, shape millrace.Shape, leaves []millrace.Digest) millrace.Digest {
	top := merkle(leaves)
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

func merkle(leaves []millrace.Digest) millrace.Digest {
	if len(leaves) == 0 {
		return millrace.Digest{}
	}
	level := slices.Clone(leaves)
	for len(level) > 1 {
		half := len(level) / 2
		// A node stands at or before its children, and each hashes a message before it writes the node.
		each(level[:half], func(b []byte, i int) []byte {
			b = append(b, nodeTag)
			b = append(b, level[2*i][:]...)
			return append(b, level[2*i+1][:]...)
		})
		if len(level)%2 == 1 {
			level[half] = level[len(level)-1]
			half++
		}
		level = level[:half]
	}
	return level[0]
}

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
