package sources

import (
	"math"
	"sort"

	"millrace"
	"millrace/mixing"
)

// The keys of a source's permutations. They never change: what a run delivers hangs on them.
const (
	keyGlobal = "global"
	keyShards = "shards"
	keyBlock  = "block"
)

// order holds what decides a source's sequence apart from its bytes. Everything in it is pure.
type order struct {
	seed   uint64
	source string
	epochs uint32 // passes; 0: endless
}

// globalKey selects the permutation of all records in one epoch.
func (o order) globalKey(e millrace.Epoch) mixing.Key {
	return mixing.DeriveKey(o.seed, mixing.Text(o.source), mixing.Number(uint64(e)), mixing.Text(keyGlobal))
}

// shardKey selects the order of the shards in one epoch.
func (o order) shardKey(e millrace.Epoch) mixing.Key {
	return mixing.DeriveKey(o.seed, mixing.Text(o.source), mixing.Number(uint64(e)), mixing.Text(keyShards))
}

// blockKey selects the permutation inside a block; shard is the index in the manifest.
func (o order) blockKey(e millrace.Epoch, shard, block uint32) mixing.Key {
	return mixing.DeriveKey(o.seed, mixing.Text(o.source), mixing.Number(uint64(e)), mixing.Text(keyBlock),
		mixing.Number(uint64(shard)), mixing.Number(uint64(block)))
}

// globalOrder maps any ordinal to its record in constant time and memory. It needs every shard's count.
type globalOrder struct {
	order
	starts []uint64 // of each shard in the concatenation of all, then the total
}

func newGlobalOrder(o order, counts []uint64) *globalOrder {
	starts := make([]uint64, len(counts)+1)
	for i, n := range counts {
		starts[i+1] = starts[i] + n
	}
	return &globalOrder{order: o, starts: starts}
}

// total returns the records of one epoch.
func (g *globalOrder) total() uint64 { return g.starts[len(g.starts)-1] }

// end returns the ordinal after the last, MaxUint64 where the stream is endless.
func (g *globalOrder) end() millrace.Ordinal {
	if g.epochs == 0 {
		return math.MaxUint64
	}
	return millrace.Ordinal(g.total() * uint64(g.epochs))
}

// locate returns the shard and record of position x in the concatenation of all shards.
func (g *globalOrder) locate(x uint64) millrace.SampleID {
	shard := sort.Search(len(g.starts)-1, func(i int) bool { return g.starts[i+1] > x })
	return millrace.SampleID{Shard: uint32(shard), Record: x - g.starts[shard]}
}

// globalWalk looks up ordinals that mostly share an epoch.
type globalWalk struct {
	order *globalOrder
	epoch millrace.Epoch
	perm  mixing.Permutation
}

func (w *globalWalk) at(n millrace.Ordinal) (millrace.Epoch, millrace.SampleID) {
	total := w.order.total()
	e := millrace.Epoch(uint64(n) / total)
	w.enter(e)
	return e, w.order.locate(w.perm.At(uint64(n) % total))
}

// inverse returns the place in an epoch's order of position x in the concatenation of all shards.
func (w *globalWalk) inverse(e millrace.Epoch, x uint64) uint64 {
	w.enter(e)
	return w.perm.Inverse(x)
}

// enter makes perm that of the epoch.
func (w *globalWalk) enter(e millrace.Epoch) {
	if w.perm.Len() == 0 || e != w.epoch {
		w.epoch, w.perm = e, mixing.NewPermutation(w.order.total(), w.order.globalKey(e))
	}
}
