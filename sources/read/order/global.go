package order

import (
	"math"
	"slices"
	"sort"

	"millrace"
	"millrace/mixing"
)

// Global maps any ordinal to its document, or to its piece of a document, in constant time. It is read-only and safe
// for concurrent use.
type Global struct {
	seed   Seed
	counts []uint64 // ordinals of each shard in an epoch
	pieces []Pieces // of each shard; nil: an ordinal is a whole document
	tokens uint32   // of a piece; 0: an ordinal is a whole document
	eras   []era    // at least one
}

// era is a run of epochs that read the same files. A slot is a file in their list.
type era struct {
	first  millrace.Epoch
	from   uint64   // the first ordinal
	starts []uint64 // of each slot in the concatenation of all, then the total
	shards []uint32 // of each slot: its shard in the manifest, or RemovedShard; nil: the slot's number
}

// NewGlobal returns the order of the documents of shards with these record counts.
func NewGlobal(seed Seed, counts []uint64) *Global {
	return (&Global{seed: seed, counts: counts}).InEras(millrace.Eras{})
}

// NewGlobalPieces returns the order of the pieces of shards. A piece has `tokens` tokens. If no document is longer, the
// order is that of the documents.
func NewGlobalPieces(seed Seed, shards []Pieces, tokens uint32) *Global {
	counts := make([]uint64, len(shards))
	for i := range shards {
		counts[i] = shards[i].Count()
	}
	return (&Global{seed: seed, counts: counts, pieces: shards, tokens: tokens}).InEras(millrace.Eras{})
}

// InEras returns the order of the same shards if each epoch reads those of its era. It fits the shards.
func (g *Global) InEras(eras millrace.Eras) *Global {
	out := &Global{seed: g.seed, counts: g.counts, pieces: g.pieces, tokens: g.tokens}
	if eras.IsZero() {
		out.eras = []era{{starts: startsOf(len(g.counts), func(i int) uint64 { return g.counts[i] })}}
		return out
	}
	for i, first := range eras.From {
		slots := eras.List(i)
		next := era{first: first, shards: make([]uint32, len(slots))}
		for n, s := range slots {
			next.shards[n] = s.Shard
		}
		next.starts = startsOf(len(slots), func(n int) uint64 {
			if slots[n].Shard == millrace.RemovedShard {
				return slots[n].Ordinals
			}
			return g.counts[slots[n].Shard]
		})
		if i > 0 {
			next.from = out.eras[i-1].start(first)
		}
		out.eras = append(out.eras, next)
	}
	return out
}

func startsOf(slots int, count func(slot int) uint64) []uint64 {
	out := make([]uint64, slots+1)
	for i := range slots {
		out[i+1] = out[i] + count(i)
	}
	return out
}

// total returns the ordinals of each epoch of the era.
func (r *era) total() uint64 { return r.starts[len(r.starts)-1] }

// start returns the first ordinal of an epoch of the era, or of the one after its last.
func (r *era) start(e millrace.Epoch) uint64 { return r.from + uint64(e-r.first)*r.total() }

// of returns the era that an ordinal belongs to.
func (g *Global) of(n millrace.Ordinal) *era {
	last := len(g.eras) - 1
	for last > 0 && uint64(n) < g.eras[last].from {
		last--
	}
	return &g.eras[last]
}

// in returns the era of an epoch.
func (g *Global) in(e millrace.Epoch) *era {
	last := len(g.eras) - 1
	for last > 0 && e < g.eras[last].first {
		last--
	}
	return &g.eras[last]
}

// Ordinals returns the ordinals of a shard in an epoch that reads it.
func (g *Global) Ordinals(shard int) uint64 { return g.counts[shard] }

// Total returns the ordinals of an epoch.
func (g *Global) Total(e millrace.Epoch) uint64 { return g.in(e).total() }

// Start returns the first ordinal of an epoch.
func (g *Global) Start(e millrace.Epoch) millrace.Ordinal { return millrace.Ordinal(g.in(e).start(e)) }

// EpochOf returns the epoch of an ordinal.
func (g *Global) EpochOf(n millrace.Ordinal) millrace.Epoch {
	r := g.of(n)
	return r.first + millrace.Epoch((uint64(n)-r.from)/r.total())
}

// PieceTokens returns the tokens of a piece, 0 if an ordinal is a whole document.
func (g *Global) PieceTokens() uint32 { return g.tokens }

// End returns the ordinal after the last, MaxUint64 if the stream is endless.
func (g *Global) End() millrace.Ordinal {
	if g.seed.Epochs == 0 {
		return math.MaxUint64
	}
	return g.Start(millrace.Epoch(g.seed.Epochs))
}

// Place is the place of an ordinal in the files: a document, and the first token of it.
type Place struct {
	millrace.SampleID
	Offset uint32 // tokens of the document before the ordinal's piece
}

// locate returns the place of position x in the concatenation of all slots. The place of a removed file's document has
// RemovedShard, and no meaning beside it.
func (g *Global) locate(r *era, x uint64) Place {
	slot := sort.Search(len(r.starts)-1, func(i int) bool { return r.starts[i+1] > x })
	at := Place{SampleID: millrace.SampleID{Shard: uint32(slot), Record: x - r.starts[slot]}}
	if r.shards != nil {
		at.Shard = r.shards[slot]
	}
	if g.pieces != nil && at.Shard != millrace.RemovedShard {
		record, piece := g.pieces[at.Shard].locate(at.Record)
		at.Record, at.Offset = record, uint32(piece)*g.tokens
	}
	return at
}

// positions returns the first position of a record in the concatenation of all shards, and the number of its
// positions: 1, or its pieces. ok is false for a record that the shard does not have. All epochs read all files.
func (g *Global) positions(id millrace.SampleID) (first, n uint64, ok bool) {
	starts := g.eras[0].starts
	start, records := starts[id.Shard], starts[id.Shard+1]-starts[id.Shard]
	if g.pieces != nil {
		records = g.pieces[id.Shard].records
	}
	if id.Record >= records {
		return 0, 0, false
	}
	if g.pieces == nil {
		return start + id.Record, 1, true
	}
	first, n = g.pieces[id.Shard].of(id.Record)
	return start + first, n, true
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

// At returns the epoch and the place of an ordinal.
func (l *Lookup) At(n millrace.Ordinal) (millrace.Epoch, Place) {
	r := l.order.of(n)
	total, in := r.total(), uint64(n)-r.from
	e := r.first + millrace.Epoch(in/total)
	l.enter(r, e)
	return e, l.order.locate(r, l.perm.At(in%total))
}

// First returns the position of a shard's first ordinal in the concatenation of the files that an epoch reads. ok is
// false if the epoch does not read the shard.
func (g *Global) First(e millrace.Epoch, shard int) (position uint64, ok bool) {
	r := g.in(e)
	if r.shards == nil {
		return r.starts[shard], true
	}
	slot := slices.Index(r.shards, uint32(shard))
	if slot < 0 {
		return 0, false
	}
	return r.starts[slot], true
}

// Ordinal returns the ordinal of an epoch at a position of the concatenation of the files that the epoch reads.
func (l *Lookup) Ordinal(e millrace.Epoch, position uint64) millrace.Ordinal {
	return l.order.Start(e) + millrace.Ordinal(l.inverse(e, position))
}

// inverse returns the place in an epoch's order of position x in the concatenation of all slots.
func (l *Lookup) inverse(e millrace.Epoch, x uint64) uint64 {
	l.enter(l.order.in(e), e)
	return l.perm.Inverse(x)
}

// enter makes perm that of an epoch of the era.
func (l *Lookup) enter(r *era, e millrace.Epoch) {
	if l.perm.Len() == 0 || e != l.epoch {
		l.epoch, l.perm = e, mixing.NewPermutation(r.total(), l.order.seed.globalKey(e))
	}
}
