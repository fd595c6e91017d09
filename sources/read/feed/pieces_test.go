package feed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/order"
)

// longCorpus has documents of many pieces among short ones. Records of text may be bad.
func longCorpus(isText bool) corpus {
	rnd := rand.New(rand.NewPCG(5, 6))
	var c corpus
	for shard := range 4 {
		var lines []string
		for r := range rnd.IntN(40) {
			line := fmt.Sprintf("s%d r%d ", shard, r)
			for range rnd.IntN(4) * rnd.IntN(90) {
				line += string(rune('a' + rnd.IntN(26)))
			}
			lines = append(lines, line)
		}
		lines = append(lines, strings.Repeat("y", 16), strings.Repeat("z", 31), strings.Repeat("w", 32), "")
		if isText {
			lines = append(lines, "bad", "and boom")
		}
		c.add(fmt.Sprintf("part-%d.jsonl", shard), lines...)
	}
	return c
}

// pieceStream lists the pieces of a source's documents in the order of their permutation.
func pieceStream(c corpus, x fixture, piece uint32, epochs int) (docs []referenceDoc) {
	var all []referenceDoc
	for shard := range c.shards {
		for record, line := range c.shards[shard] {
			d := referenceTokens(line, x.format.lengths)
			d.id, d.piece = millrace.SampleID{Shard: uint32(shard), Record: uint64(record)}, piece
			for ; d.start == 0 || int(d.start) < len(d.tokens); d.start += piece {
				all = append(all, d)
			}
		}
	}
	for e := range epochs {
		key := mixing.DeriveKey(7, mixing.Text("web"), mixing.Number(uint64(e)), mixing.Text("global"))
		p := mixing.NewPermutation(uint64(len(all)), key)
		for i := range all {
			d := all[p.At(uint64(i))]
			d.epoch = millrace.Epoch(e)
			docs = append(docs, d)
		}
	}
	return docs
}

// pieceFixtures opens sources of text with kept lengths, of tokens that are read whole, and of tokens that are read in
// parts.
func pieceFixtures(t *testing.T, visit func(name string, c corpus, x fixture, s *sources.Source)) {
	for _, format := range []fakeFormat{{}, {lengths: true, pieces: true}} {
		c := longCorpus(!format.lengths)
		x := fixture{format: format, shuffle: millrace.Global, epochs: 2, index: t.TempDir()}
		dir := c.write(t)
		name := "tokens"
		if !format.lengths {
			name = "text"
			s := x.open(t, dir)
			if _, err := s.InPieces(t.Context(), 16); !errors.Is(err, millrace.ErrInvalid) ||
				!strings.Contains(err.Error(), "millrace index MIXTURE --lengths") {
				t.Fatalf("lengths are not known: %v", err)
			}
			docs, _ := referenceStream(c, x, s, 2)
			f := New(s, Position{}, order.Stripe{}, Config{})
			stop := running(t, f)
			drain(t, f, 0, 500, docs)
			stop()
			s.Close()
		}
		visit(name, c, x, x.open(t, dir))
	}
}

// TestFeedInPieces: with any budget, decoders, stripes and steps, the stream is the one of all pieces in their
// permutation, and a piece comes with the token after it.
func TestFeedInPieces(t *testing.T) {
	pieceFixtures(t, func(name string, c corpus, x fixture, s *sources.Source) {
		for _, piece := range []uint32{16, 1, 1000} {
			pieces, err := s.InPieces(t.Context(), piece)
			if err != nil {
				t.Fatal(err)
			}
			docs := pieceStream(c, x, piece, 2)
			for _, stripes := range []uint32{1, 3} {
				for _, limit := range []int64{1, 3000, 1 << 20} {
					t.Run(
						fmt.Sprintf("%s/of %d/%d stripes/budget %d", name, piece, stripes, limit),
						func(t *testing.T) {
							for i := range stripes {
								f := New(pieces, Position{}, order.Stripe{Index: i, Of: stripes},
									Config{Budget: budget.New(limit), Parallel: 3})
								stop := running(t, f)
								drain(t, f, 0, 1+int(limit%97), docs)
								stop()
							}
						},
					)
				}
			}
		}
	})
}

// TestStandbyInPieces: a standby and a second reading serve the pieces of the order at random.
func TestStandbyInPieces(t *testing.T) {
	pieceFixtures(t, func(name string, c corpus, x fixture, s *sources.Source) {
		pieces, err := s.InPieces(t.Context(), 16)
		if err != nil {
			t.Fatal(err)
		}
		docs := pieceStream(c, x, 16, 2)
		f := New(pieces, Position{Ordinal: 3}, order.Stripe{}, Config{Budget: budget.New(1 << 20), Standby: true})
		if err := f.Warm(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(1, 9))
		var offers []Offer
		var reqs []Request
		for n := 3; n < len(docs); n++ {
			d := &docs[n]
			o := Offer{SampleMeta: millrace.SampleMeta{Ordinal: millrace.Ordinal(n), ID: d.id, Offset: d.start}}
			o.Lengths.Tokens = uint32(len(d.tokens))
			offers = append(offers, o)
			if len(d.tokens) > 0 {
				reqs = append(reqs, Request{o.Ordinal, d.start, d.end() - d.start})
			}
		}
		for range 2 {
			fetchAll(t, f, offers, rnd, docs)
		}
		served := 0
		err = f.FetchAgain(t.Context(), reqs, func(i int, tokens []uint32, _ string) error {
			d := &docs[reqs[i].Ordinal]
			if want := d.tokens[d.start:min(int(d.end())+1, len(d.tokens))]; !slices.Equal(tokens, want) {
				return fmt.Errorf("%s: ordinal %d has %v, want %v", name, reqs[i].Ordinal, tokens, want)
			}
			served++
			return nil
		})
		if err != nil || served != len(reqs) {
			t.Fatalf("%d of %d pieces were read again: %v", served, len(reqs), err)
		}
		out := Request{Ordinal: reqs[0].Ordinal, Offset: reqs[0].Offset, Length: 17}
		if err := f.Fetch(t.Context(), []Request{out}, func(int, []uint32, string) error { return nil }); err == nil {
			t.Fatal("a request beyond its piece was served")
		}
	})
}
