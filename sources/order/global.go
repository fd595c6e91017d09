package order

import (
	"math"
	"sort"

	"millrace"
	"millrace/mixing"
)

// Global maps any ordinal to its document, or to its piece of a document, in constant time. It is read-only and safe
// for concurrent use.
type Global struct {
	seed   Seed
	starts []uint64 // of each shard in the concatenation of all, then the total
	pieces []Pieces // of each shard; nil: an ordinal is a whole document
	tokens uint32   // of a piece; 0: an ordinal is a whole document
}

// NewGlobal returns the order of the documents of shards with these record counts.
func NewGlobal(seed Seed, counts []uint64) *Global {
	return newGlobal(Global{seed: seed}, len(counts), func(shard int) uint64 { return counts[shard] })
}

// NewGlobalPieces returns the order of the pieces of shards. A piece has so many tokens. If no document is longer, the
// order is that of the documents.
func NewGlobalPieces(seed Seed, shards []Pieces, tokens uint32) *Global {
	g := Global{seed: seed, pieces: shards, tokens: tokens}
	return newGlobal(g, len(shards), func(shard int) uint64 { return shards[shard].Count() })
}

func newGlobal(g Global, shards int, count func(shard int) uint64) *Global {
	g.starts = make([]uint64, shards+1)
	for i := range shards {
		g.starts[i+1] = g.starts[i] + count(i)
	}
	return &g
}

// Total returns the ordinals of one epoch.
func (g *Global) Total() uint64 { return g.starts[len(g.starts)-1] }

// PieceTokens returns the tokens of a piece, 0 if an ordinal is a whole document.
func (g *Global) PieceTokens() uint32 { return g.tokens }

// End returns the ordinal after the last, MaxUint64 if the stream is endless.
func (g *Global) End() millrace.Ordinal {
	if g.seed.Epochs == 0 {
		return math.MaxUint64
	}
	return millrace.Ordinal(g.Total() * uint64(g.seed.Epochs))
}

// Place is the place of an ordinal in the files: a document, and the first token of it.
type Place struct {
	millrace.SampleID
	Offset uint32 // tokens of the document before the ordinal's piece
}

// locate returns the place of position x in the concatenation of all shards.
func (g *Global) locate(x uint64) Place {
	shard := sort.Search(len(g.starts)-1, func(i int) bool { return g.starts[i+1] > x })
	at := Place{SampleID: millrace.SampleID{Shard: uint32(shard), Record: x - g.starts[shard]}}
	if g.pieces != nil {
		record, piece := g.pieces[shard].locate(at.Record)
		at.Record, at.Offset = record, uint32(piece)*g.tokens
	}
	return at
}

// positions returns the first position of a record in the concatenation of all shards, and the number of its
// positions: 1, or its pieces. ok is false for a record that the shard does not have.
func (g *Global) positions(id millrace.SampleID) (first, n uint64, ok bool) {
	start, records := g.starts[id.Shard], g.starts[id.Shard+1]-g.starts[id.Shard]
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
