// Package plannertest has sources and mixtures for tests of the planner: made up from seeds, and held in memory.
package plannertest

import (
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/progress"
)

// Corpus is a made-up set of sources: documents by source, repeated for a number of epochs.
type Corpus struct {
	Docs   [][]millrace.SampleMeta
	Epochs []uint64 // 0: endless
}

// Peek implements planner.Offers with all metadata known.
func (c *Corpus) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	n := uint64(len(c.Docs[source]))
	if n == 0 || c.Epochs[source] > 0 && uint64(ordinal) >= n*c.Epochs[source] {
		return millrace.SampleMeta{}, planner.Ended
	}
	meta := c.Docs[source][uint64(ordinal)%n]
	meta.Ordinal, meta.Epoch = ordinal, millrace.Epoch(uint64(ordinal)/n)
	return meta, planner.Ready
}

// Document makes a document of a length. Every second one of length 0 is a reject.
func Document(record int, length uint32) millrace.SampleMeta {
	m := millrace.SampleMeta{
		ID:      millrace.SampleID{Shard: 3, Record: uint64(record)},
		Lengths: millrace.Lengths{Tokens: length},
	}
	if length == 0 && record%2 == 0 {
		m.Rejected = true
	}
	return m
}

// RandomCorpus has documents of every special length: without tokens, of 1 token, that fill a bin, that span many bins.
func RandomCorpus(rng *rand.Rand, sources, docs int, t uint32) *Corpus {
	c := &Corpus{Docs: make([][]millrace.SampleMeta, sources), Epochs: make([]uint64, sources)}
	for s := range c.Docs {
		c.Epochs[s] = 1 + rng.Uint64N(2)
		for d := range 1 + rng.IntN(docs) {
			var n uint32
			switch rng.IntN(12) {
			case 0:
				n = 0
			case 1:
				n = 1
			case 2:
				n = t
			case 3:
				n = t * (1 + rng.Uint32N(5))
			case 4:
				n = rng.Uint32N(10 * t)
			default:
				n = 1 + rng.Uint32N(t/2+1)
			}
			doc := Document(d, n)
			doc.Lengths.Patches = n % 7 * uint32(d%3) // some have images
			c.Docs[s] = append(c.Docs[s], doc)
		}
		c.Docs[s] = append(c.Docs[s], Document(docs, 1+rng.Uint32N(t)))
	}
	return c
}

// InPieces cuts a source into pieces of `tokens` tokens. They become its ordinals, in random order.
func (c *Corpus) InPieces(rng *rand.Rand, spec *planner.Spec, source int, tokens uint32) {
	var pieces []millrace.SampleMeta
	for _, meta := range c.Docs[source] {
		for ; meta.Offset == 0 || meta.Offset < meta.Lengths.Tokens; meta.Offset += tokens {
			pieces = append(pieces, meta)
		}
	}
	rng.Shuffle(len(pieces), func(i, j int) { pieces[i], pieces[j] = pieces[j], pieces[i] })
	c.Docs[source], spec.Sources[source].PieceTokens = pieces, tokens
}

// SomeInPieces makes pieces the ordinals of some sources, of one or several sequences.
func (c *Corpus) SomeInPieces(rng *rand.Rand, spec *planner.Spec) {
	for source := range c.Docs {
		if times := rng.Uint32N(4); times > 0 {
			c.InPieces(rng, spec, source, times*spec.SequenceLength)
		}
	}
}

// Shy is a corpus that often answers Pending when an ordinal is asked for the first time.
type Shy struct {
	*Corpus
	rng  *rand.Rand
	seen map[[2]uint64]bool
}

// NewShy returns a Shy corpus.
func NewShy(c *Corpus, seed uint64) *Shy {
	return &Shy{c, rand.New(rand.NewPCG(seed, 11)), map[[2]uint64]bool{}}
}

// Peek implements planner.Offers.
func (s *Shy) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, planner.Availability) {
	key := [2]uint64{uint64(source), uint64(ordinal)}
	if !s.seen[key] && s.rng.IntN(3) > 0 {
		s.seen[key] = s.rng.IntN(2) == 0
		return millrace.SampleMeta{}, planner.Pending
	}
	s.seen[key] = true
	return s.Corpus.Peek(source, ordinal)
}

// Constant returns a schedule with constant weights.
func Constant(t testing.TB, weights ...string) *mixing.Schedule {
	t.Helper()
	return Schedule(t, mixing.Milestone{Weights: Weights(t, weights...)})
}

// Schedule returns the schedule of milestones, which must be valid.
func Schedule(t testing.TB, milestones ...mixing.Milestone) *mixing.Schedule {
	t.Helper()
	s, err := mixing.NewSchedule(len(milestones[0].Weights), milestones)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Weights parses weights, which must be valid.
func Weights(t testing.TB, texts ...string) []mixing.Weight {
	t.Helper()
	ws := make([]mixing.Weight, len(texts))
	for i, text := range texts {
		w, err := mixing.ParseWeight(text)
		if err != nil {
			t.Fatal(err)
		}
		ws[i] = w
	}
	return ws
}

// NewSpec is a spec with sources a, b, … that leave when exhausted.
func NewSpec(t testing.TB, seqlen uint32, batch int, weights ...string) *planner.Spec {
	t.Helper()
	spec := &planner.Spec{
		SequenceLength: seqlen, GlobalBatch: batch, PadMultiple: 1, Packing: millrace.BestFit,
		Unit: millrace.UnitTokens, LastStep: millrace.PadLast,
		Schedule: Constant(t, weights...),
	}
	for i := range weights {
		spec.Sources = append(spec.Sources,
			planner.SourceSpec{Name: string(rune('a' + i)), OnExhausted: millrace.Renormalize})
	}
	return spec
}

// RandomSpec returns a spec for a random corpus.
func RandomSpec(t testing.TB, rng *rand.Rand, sources int) *planner.Spec {
	weights := make([]string, sources)
	for i := range weights {
		weights[i] = []string{"1", "0.25", "3", "0.001", "7"}[rng.IntN(5)]
	}
	spec := NewSpec(t, []uint32{8, 64, 96}[rng.IntN(3)], 16*(1+rng.IntN(2)), weights...)
	spec.PadMultiple = []uint32{1, 1, 8}[rng.IntN(3)]
	spec.Unit = []millrace.Unit{millrace.UnitTokens, millrace.UnitSamples}[rng.IntN(2)]
	packings := [5]millrace.Packing{
		millrace.BestFit, millrace.BestFit, millrace.Pad, millrace.Concat, millrace.Bucketed,
	}
	spec.Packing = packings[rng.IntN(5)]
	spec.LastStep = []millrace.LastStep{millrace.PadLast, millrace.ShortLast}[rng.IntN(2)]
	spec.Window = []int{0, 1, 2, 4, 5}[rng.IntN(5)]
	if spec.Packing == millrace.BestFit || spec.Packing == millrace.Bucketed {
		spec.Carry = []int{0, 0, 1, 7, 512, planner.AutoCarry}[rng.IntN(6)]
	}
	spec.BucketRows = []bucket.Rule{bucket.Tokens, bucket.Constant}[spec.Window%2]
	return spec
}

// Collect advances to the end or, if limit is not 0, to that many steps.
func Collect(
	t testing.TB, spec *planner.Spec, st progress.State, o planner.Offers, limit int,
) (steps []planner.Selection, out planner.Outcome, err error) {
	t.Helper()
	s, err := planner.NewSelector(spec, st)
	if err != nil {
		t.Fatal(err)
	}
	for range 1_000_000 {
		if limit > 0 && len(steps) == limit {
			return steps, out, nil
		}
		sel, o, err := s.Advance(o)
		switch {
		case err != nil:
			return steps, o, err
		case o.Kind == planner.Finished:
			return steps, o, nil
		case o.Kind == planner.Sealed:
			steps = append(steps, sel)
		}
	}
	t.Fatal("no end after a million calls")
	return nil, out, nil
}

// Token shares of the classes of documents: web, code, papers, books.
var (
	PretrainShares    = []string{"0.75", "0.15", "0.07", "0.03"}
	LongContextShares = []string{"0.35", "0.10", "0.15", "0.40"}
)

// Pretrain is an endless corpus of web, code, papers and books with PretrainShares.
func Pretrain(b testing.TB, seqlen uint32, batch, docs int) (*planner.Spec, *Corpus) {
	return MixedCorpus(b, seqlen, batch, docs, PretrainShares)
}

// MixedCorpus is an endless corpus of the four classes of documents with the given token shares.
func MixedCorpus(b testing.TB, seqlen uint32, batch, docs int, shares []string) (*planner.Spec, *Corpus) {
	spec := NewSpec(b, seqlen, batch, shares...)
	c := &Corpus{Docs: make([][]millrace.SampleMeta, 4), Epochs: make([]uint64, 4)}
	draw := newLengths(1)
	for s := range c.Docs {
		spec.Sources[s].OnExhausted = millrace.Repeat
		for d := range docs {
			c.Docs[s] = append(c.Docs[s], Document(2*d+1, draw.next(s)))
		}
	}
	return spec, c
}

// LongContext is an endless corpus of the four classes with LongContextShares.
func LongContext(t testing.TB, seqlen uint32, batch, docs int) (*planner.Spec, *Corpus) {
	spec, c := Pretrain(t, seqlen, batch, docs)
	spec.Schedule = Constant(t, "0.35", "0.10", "0.15", "0.40")
	return spec, c
}
