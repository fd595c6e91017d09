package order

import (
	"math"
	"sort"

	"millrace"
	"millrace/mixing"
)

// Global maps any ordinal to its record in constant time and memory. It is read-only and safe for concurrent use.
type Global struct {
	seed   Seed
	starts []uint64 // of each shard in the concatenation of all, then the total
}

// NewGlobal returns the order of shards with these record counts.
func NewGlobal(seed Seed, counts []uint64) *Global {
	starts := make([]uint64, len(counts)+1)
	for i, n := range counts {
		starts[i+1] = starts[i] + n
	}
	return &Global{seed: seed, starts: starts}
}

// Total returns the records of one epoch.
func (g *Global) Total() uint64 { return g.starts[len(g.starts)-1] }

// End returns the ordinal after the last, MaxUint64 if the stream is endless.
func (g *Global) End() millrace.Ordinal {
	if g.seed.Epochs == 0 {
		return math.MaxUint64
	}
	return millrace.Ordinal(g.Total() * uint64(g.seed.Epochs))
}

// locate returns the shard and record of position x in the concatenation of all shards.
func (g *Global) locate(x uint64) millrace.SampleID {
	shard := sort.Search(len(g.starts)-1, func(i int) bool { return g.starts[i+1] > x })
	return millrace.SampleID{Shard: uint32(shard), Record: x - g.starts[shard]}
}

// Lookup maps ordinals that mostly share an epoch: it keeps that epoch's permutation. It is not safe for concurrent
// use.
type Lookup struct {
	order *Global
	epoch millrace.Epoch
	perm  mixing.Permutation
}

// Lookup returns a lookup for one goroutine.
func (g *Global) Lookup() *Lookup { return &Lookup{order: g} }

// At returns the epoch and the record of an ordinal.
func (l *Lookup) At(n millrace.Ordinal) (millrace.Epoch, millrace.SampleID) {
	total := l.order.Total()
	e := millrace.Epoch(uint64(n) / total)
	l.enter(e)
	return e, l.order.locate(l.perm.At(uint64(n) % total))
}

// inverse returns the place in an epoch's order of position x in the concatenation of all shards.
func (l *Lookup) inverse(e millrace.Epoch, x uint64) uint64 {
	l.enter(e)
	return l.perm.Inverse(x)
}

// enter makes perm that of the epoch.
func (l *Lookup) enter(e millrace.Epoch) {
	if l.perm.Len() == 0 || e != l.epoch {
		l.epoch, l.perm = e, mixing.NewPermutation(l.order.Total(), l.order.seed.globalKey(e))
	}
}
