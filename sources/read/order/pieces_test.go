package order

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"millrace"
	"millrace/mixing"
)

// countPieces counts the pieces of a shard's documents.
func countPieces(t interface{ Fatal(...any) }, tokens uint32, lengths []uint32) Pieces {
	c := NewPieceCounter(tokens)
	for _, n := range lengths {
		if err := c.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	return c.Pieces()
}

// drawLengths draws the lengths of the documents of a few shards: empty ones, short ones, long ones, and multiples of a
// piece.
func drawLengths(t *rapid.T, tokens uint32) (shards [][]uint32) {
	length := rapid.OneOf(rapid.Uint32Range(0, tokens), rapid.Uint32Range(0, 12*tokens),
		rapid.Map(rapid.Uint32Range(0, 6), func(n uint32) uint32 { return n * tokens }))
	return rapid.SliceOfN(rapid.SliceOfN(length, 0, 20), 1, 6).Draw(t, "lengths")
}

// TestPiecesAreThePermutedList: the order is the one of a list of all pieces under the epoch's permutation, and the
// pieces of an epoch hold every token of every document once.
func TestPiecesAreThePermutedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.Uint32Range(1, 9).Draw(t, "tokens")
		lengths := drawLengths(t, tokens)
		seed := Seed{Run: rapid.Uint64().Draw(t, "seed"), Source: "books", Epochs: 2}
		var shards []Pieces
		var list []Place
		for shard, documents := range lengths {
			shards = append(shards, countPieces(t, tokens, documents))
			for record, n := range documents {
				id := millrace.SampleID{Shard: uint32(shard), Record: uint64(record)}
				for offset := uint32(0); offset == 0 || offset < n; offset += tokens {
					list = append(list, Place{id, offset})
				}
			}
		}
		g := NewGlobalPieces(seed, shards, tokens)
		if g.Total(0) != uint64(len(list)) {
			t.Fatalf("%d pieces, want %d", g.Total(0), len(list))
		}
		if len(list) == 0 {
			return
		}
		w := g.Lookup()
		for n := range g.End() {
			epoch := millrace.Epoch(uint64(n) / g.Total(0))
			perm := mixing.NewPermutation(g.Total(0), seed.globalKey(epoch))
			want := list[perm.At(uint64(n)%g.Total(0))]
			if e, at := w.At(n); e != epoch || at != want {
				t.Fatalf("ordinal %d is epoch %d, %+v, want %d, %+v", n, e, at, epoch, want)
			}
		}
		below := millrace.Ordinal(rapid.Uint64Range(0, uint64(g.End())).Draw(t, "below"))
		at := map[millrace.SampleID][]millrace.Ordinal{}
		for n := range below {
			_, place := w.At(n)
			at[place.SampleID] = append(at[place.SampleID], n)
		}
		for _, place := range list {
			if got := g.ordinals(place.SampleID, below, true); !slices.Equal(got, at[place.SampleID]) {
				t.Fatalf("%v is at %v, want %v", place.SampleID, got, at[place.SampleID])
			}
		}
		if got := g.ordinals(millrace.SampleID{Record: uint64(len(lengths[0]))}, below, true); got != nil {
			t.Fatalf("a record beyond the last is at %v", got)
		}
	})
}

// TestShortDocumentsKeepTheirOrder: without a document longer than a piece, pieces have the order of documents.
func TestShortDocumentsKeepTheirOrder(t *testing.T) {
	seed := Seed{Run: 7, Source: "web"}
	lengths := []uint32{0, 4, 1, 3, 4, 2, 2}
	whole := NewGlobal(seed, []uint64{7, 7}).Lookup()
	pieces := NewGlobalPieces(seed, []Pieces{countPieces(t, 4, lengths), countPieces(t, 4, lengths)}, 4).Lookup()
	for n := range millrace.Ordinal(40) {
		e, at := whole.At(n)
		if f, piece := pieces.At(n); e != f || at != piece {
			t.Fatalf("ordinal %d is %+v, want %+v", n, piece, at)
		}
	}
}

// TestPieceCounts: counts survive encoding, damaged bytes are noticed, and memory follows the long documents.
func TestPieceCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.Uint32Range(1, 9).Draw(t, "tokens")
		for _, documents := range drawLengths(t, tokens) {
			p := countPieces(t, tokens, documents)
			in := p.Encode()
			got, err := DecodePieces(in)
			if err != nil || got.Count() != p.Count() || !reflect.DeepEqual(got.Encode(), in) {
				t.Fatalf("%+v, %v, want %+v", got, err, p)
			}
			if len(p.long) > 0 {
				if _, err := DecodePieces(in[:len(in)-1]); err == nil {
					t.Fatal("counts cut short were read")
				}
			}
			long := 0
			for _, n := range documents {
				if n > tokens {
					long++
				}
			}
			if cap(p.long)+cap(p.extra) != 2*long {
				t.Fatalf("room for %d numbers, want 2 for each of %d long documents", cap(p.long)+cap(p.extra), long)
			}
		}
	})
	for _, damaged := range [][]byte{nil, {0x80}, {3, 0}, {3, 0, 0}, {3, 3, 1}, {3, 1, 1, 1, 1}} {
		if p, err := DecodePieces(damaged); err == nil {
			t.Errorf("% x was read as %+v", damaged, p)
		}
	}
	c := NewPieceCounter(1)
	if c.Add(math.MaxUint32) != nil || c.Add(3) == nil {
		t.Error("2^32 pieces beyond the first were counted")
	}
}
