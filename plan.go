package millrace

import "fmt"

// Layout is the shape of a microbatch's tensors.
type Layout string

// The layouts.
const (
	Packed Layout = "packed" // [micro_batch_size, sequence_length]
	Varlen Layout = "varlen" // 1-D with cu_seqlens (THD)
)

// TokenDtype is the element type of tokens, labels and position_ids.
type TokenDtype string

// The token dtypes.
const (
	Int64 TokenDtype = "int64"
	Int32 TokenDtype = "int32"
)

// Size returns the bytes of one element.
func (d TokenDtype) Size() int {
	if d == Int32 {
		return 4
	}
	return 8
}

// Topology is the arrangement of the trainer's ranks on axes. Ranks counts all ranks.
type Topology struct {
	Ranks int
	TP    int
	CP    int
	PP    int
}

// Coordinates are a rank's place along each axis, from 0.
type Coordinates struct {
	TP int
	CP int
	DP int
	PP int
}

// Coordinates returns the place of a rank of the world. Tensor parallelism runs fastest, then context, data and
// pipeline parallelism, as in Megatron's default order (tp-cp-ep-dp-pp).
func (t Topology) Coordinates(r Rank) Coordinates {
	n := int(r)
	return Coordinates{
		TP: n % t.TP,
		CP: n / t.TP % t.CP,
		DP: n / (t.TP * t.CP) % t.DP(),
		PP: n / (t.TP * t.CP * t.DP()),
	}
}

// Rank returns the rank of the world at a place. It is the inverse of Coordinates.
func (t Topology) Rank(c Coordinates) Rank {
	return Rank(c.TP + t.TP*(c.CP+t.CP*(c.DP+t.DP()*c.PP)))
}

// DP returns the number of data-parallel ranks.
func (t Topology) DP() int { return t.Ranks / (t.TP * t.CP * t.PP) }

// Validate returns an error unless the axes divide the ranks.
func (t Topology) Validate() error {
	if t.Ranks < 1 || t.TP < 1 || t.CP < 1 || t.PP < 1 {
		return fmt.Errorf("topology: ranks %d, tp %d, cp %d, pp %d: each must be at least 1", t.Ranks, t.TP, t.CP, t.PP)
	}
	if t.Ranks%(t.TP*t.CP*t.PP) != 0 {
		return fmt.Errorf("topology: %d ranks do not divide by tp*cp*pp = %d", t.Ranks, t.TP*t.CP*t.PP)
	}
	return nil
}

// Broadcast names the axes along which the trainer itself hands tensors on, and the ranks that need fewer of them.
type Broadcast struct {
	TP bool // only the first tensor-parallel rank gets them
	PP bool // only the first and the last pipeline stage get them
	// Positions: middle pipeline stages get only the tensors that need no tokens.
	Positions bool
}

// IsBare reports whether a rank gets only the tensors that need no tokens.
func (b Broadcast) IsBare(t Topology, r Rank) bool {
	stage := t.Coordinates(r).PP
	return b.Positions && stage > 0 && stage < t.PP-1
}

// Source returns the rank of the world that receives the tensors for a rank: the rank itself, or the one that hands
// them on to it.
func (b Broadcast) Source(t Topology, r Rank) Rank {
	at := t.Coordinates(r)
	if b.TP {
		at.TP = 0
	}
	if b.PP && at.PP != t.PP-1 {
		at.PP = 0
	}
	return t.Rank(at)
}

// Shape has the settings that decide the bytes of a microbatch, apart from its segments.
type Shape struct {
	SequenceLength uint32     // tokens in a row
	MicroBatch     uint32     // rows of a microbatch
	Layout         Layout     //
	TokenDtype     TokenDtype //
	CapTokens      uint32     // varlen: most tokens in a microbatch
	CP             uint32     // context-parallel ranks that share a microbatch; 0 means 1
	Local          bool       // varlen: some documents are whole on one of them (Assignment.Holder)
}

// Plan is one sealed step. It is immutable. Assignments are ordered by (rank, microbatch, row, start). Leaves has one
// digest for each rank × microbatch, rank-major: the leaves of the Merkle tree whose root is Placement. A part of a
// plan has the assignments and leaves of some ranks, and Held.
type Plan struct {
	Stream       Stream
	Attempt      Attempt
	Step         Step
	Term         Term
	Ranks        uint32 // data-parallel ranks
	Microbatches uint32 // of each rank
	// Of a microbatch. 0 in plans that were stored before there were stages: then the run's settings hold.
	SequenceLength uint32 // tokens in a row
	MicroBatch     uint32 // rows

	Assignments []Assignment
	Content     Digest // of the content: equal under every topology
	Placement   Digest // of the placement
	Leaves      []Digest
	Last        bool // no step follows
	// Counted: Untrained of each segment is known. Otherwise it is 0, and the plan does not say whether tokens are
	// untrained: no source has any, or an earlier release made the plan.
	Counted bool

	// Of a part of a plan. Held has the data-parallel ranks of which it has the assignments and leaves, ascending; nil:
	// the plan is whole. Proof leads from the leaves to Placement; see package seal. Labels are the StepLabels of the
	// whole plan.
	Held   []Rank
	Proof  []Digest
	Labels uint64
}

// Part returns the assignments of one microbatch of one rank, a subslice of Assignments.
func (p *Plan) Part(r Rank, microbatch uint32) []Assignment {
	lo := p.lower(r, microbatch)
	hi := p.lower(r, microbatch+1)
	return p.Assignments[lo:hi]
}

func (p *Plan) lower(r Rank, microbatch uint32) int {
	lo, hi := 0, len(p.Assignments)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		a := &p.Assignments[mid]
		if a.Rank < r || a.Rank == r && a.Microbatch < microbatch {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
