// Package parts cuts sealed plans into parts. A sidecar gets the part of a plan for the ranks of its host: their
// assignments, their leaves, and the digests that prove the leaves against the plan's placement digest.
package parts

import (
	"fmt"
	"slices"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/internal/seal"
	pb "millrace/proto"
)

// Cutter cuts plans. It keeps the trees of the plans that it has cut until Forget: every host that connects gets a part
// of each of them. Not safe for concurrent use.
type Cutter struct{ wholes map[uint64]*whole }

// whole has what all parts of a plan need.
type whole struct {
	plan   *pb.Plan
	tree   seal.Tree
	labels uint64
}

// NewCutter returns a cutter without plans.
func NewCutter() *Cutter { return &Cutter{wholes: map[uint64]*whole{}} }

// Forget drops the trees of the steps below one.
func (c *Cutter) Forget(below uint64) {
	for step := range c.wholes {
		if step < below {
			delete(c.wholes, step)
		}
	}
}

// Part returns the encoded part of a sealed plan for data-parallel ranks, which ascend. Ranks beyond those of the plan
// have no part: a plan of an attempt before may have fewer. It returns nil if no rank is left.
func (c *Cutter) Part(p *pb.Plan, ranks []uint32) ([]byte, error) {
	within, _ := slices.BinarySearch(ranks, p.Ranks)
	if ranks = ranks[:within]; len(ranks) == 0 {
		return nil, nil
	}
	body, err := pbuf.Marshal(c.of(p).part(ranks))
	if err != nil {
		return nil, fmt.Errorf("encode the part of step %d for ranks %d: %w", p.Step, ranks, err)
	}
	return body, nil
}

func (c *Cutter) of(p *pb.Plan) *whole {
	if w := c.wholes[p.Step]; w != nil && w.plan == p {
		return w
	}
	leaves := make([]millrace.Digest, len(p.Leaves)/len(millrace.Digest{}))
	for i := range leaves {
		copy(leaves[i][:], p.Leaves[len(leaves[i])*i:])
	}
	w := &whole{plan: p, tree: seal.NewTree(leaves), labels: labels(p.Assignments)}
	c.wholes[p.Step] = w
	return w
}

// labels counts as constructors.StepLossTokens does.
func labels(a *pb.Assignments) (n uint64) {
	for i, length := range a.Length {
		if len(a.Part) > 0 && a.Part[i] > 0 {
			continue // counted with the segment's first slice
		}
		n += uint64(length)
		if !a.More[i] {
			n--
		}
		if len(a.Untrained) > 0 {
			n -= uint64(a.Untrained[i])
		}
	}
	return n
}

func (w *whole) part(ranks []uint32) *pb.Plan {
	p := w.plan
	var rows, leaves runs
	typed := make([]millrace.Rank, len(ranks))
	for i, r := range ranks {
		typed[i] = millrace.Rank(r)
		from, _ := slices.BinarySearch(p.Assignments.Rank, r)
		to, _ := slices.BinarySearch(p.Assignments.Rank, r+1)
		rows.add(from, to)
		perRank := int(p.Microbatches) * len(millrace.Digest{})
		leaves.add(int(r)*perRank, int(r+1)*perRank)
	}
	var proof []byte
	for _, d := range w.tree.Prove(typed, p.Microbatches) {
		proof = append(proof, d[:]...)
	}
	return &pb.Plan{
		Fence: p.Fence, Step: p.Step, Ranks: p.Ranks, Microbatches: p.Microbatches,
		Assignments: of(p.Assignments, rows), Content: p.Content, Placement: p.Placement,
		Leaves: take(p.Leaves, leaves), Last: p.Last, State: p.State,
		SequenceLength: p.SequenceLength, MicroBatch: p.MicroBatch, Counted: p.Counted,
		Held: &pb.Held{Rank: ranks, Proof: proof, Labels: w.labels},
	}
}

// of returns some rows of all columns.
func of(a *pb.Assignments, rows runs) *pb.Assignments {
	return &pb.Assignments{
		Source: take(a.Source, rows), Ordinal: take(a.Ordinal, rows), Epoch: take(a.Epoch, rows),
		Shard: take(a.Shard, rows), Record: take(a.Record, rows), Offset: take(a.Offset, rows),
		Length: take(a.Length, rows), More: take(a.More, rows), Rank: take(a.Rank, rows),
		Microbatch: take(a.Microbatch, rows), Row: take(a.Row, rows), Start: take(a.Start, rows),
		Part: take(a.Part, rows), Parts: take(a.Parts, rows), Holder: take(a.Holder, rows),
		Patches: take(a.Patches, rows), Untrained: take(a.Untrained, rows),
	}
}

// runs are ranges of a column, from an index to before another, in ascending order.
type runs [][2]int

// add appends a range. It joins a range that begins where the last one ends.
func (r *runs) add(from, to int) {
	if n := len(*r); n > 0 && (*r)[n-1][1] == from {
		(*r)[n-1][1] = to
		return
	}
	*r = append(*r, [2]int{from, to})
}

// take returns ranges of a column. One range is the memory of the column itself.
func take[T any](column []T, of runs) (out []T) {
	if len(column) == 0 {
		return nil
	}
	if len(of) == 1 {
		return column[of[0][0]:of[0][1]]
	}
	for _, r := range of {
		out = append(out, column[r[0]:r[1]]...)
	}
	return out
}
