package sidecar

import (
	"slices"

	"millrace"
)

// Source returns the rank of the world that has the tensors of a rank's batches: itself where it gets them from here.
func (b *Begin) Source(rank millrace.Rank) millrace.Rank { return b.Broadcast.Source(b.Topology, rank) }

// fed lists the data-parallel ranks whose samples a host needs for its ranks.
func (b *Begin) fed(ranks []millrace.Rank) (out []millrace.Rank) {
	for _, r := range ranks {
		if dp := millrace.Rank(b.Topology.Coordinates(r).DP); b.Source(r) == r && !slices.Contains(out, dp) {
			out = append(out, dp)
		}
	}
	return out
}

// share is what a rank of the world gets of the plans.
type share struct {
	part  millrace.Rank // data-parallel
	slice uint32        // context-parallel
	whole bool          // with its tensors; else what describes them
}

func (b *Begin) share(rank millrace.Rank) share {
	at := b.Topology.Coordinates(rank)
	return share{part: millrace.Rank(at.DP), slice: uint32(at.CP), whole: b.Source(rank) == rank}
}
