package planner

import (
	"math/rand/v2"
	"testing"

	"millrace"
	"millrace/mixing"
)

// corpus is a made-up set of sources: documents by source, passed over epochs times.
type corpus struct {
	docs   [][]millrace.SampleMeta
	epochs []uint64 // 0: endless
}

// Peek implements Offers with every fact at hand.
func (c *corpus) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, Availability) {
	n := uint64(len(c.docs[source]))
	if n == 0 || c.epochs[source] > 0 && uint64(ordinal) >= n*c.epochs[source] {
		return millrace.SampleMeta{}, Ended
	}
	meta := c.docs[source][uint64(ordinal)%n]
	meta.Ordinal, meta.Epoch = ordinal, millrace.Epoch(uint64(ordinal)/n)
	return meta, Ready
}

// document makes a document of a length; 0 is every other time a reject.
func document(record int, length uint32) millrace.SampleMeta {
	m := millrace.SampleMeta{ID: millrace.SampleID{Shard: 3, Record: uint64(record)}, Lengths: millrace.Lengths{Tokens: length}}
	if length == 0 && record%2 == 0 {
		m.Reject = "too dull"
	}
	return m
}

// randomCorpus has documents of every awkward kind: empty ones, ones of 1 token, ones that fill a bin, ones that span many.
func randomCorpus(rng *rand.Rand, sources, docs int, t uint32) *corpus {
	c := &corpus{docs: make([][]millrace.SampleMeta, sources), epochs: make([]uint64, sources)}
	for s := range c.docs {
		c.epochs[s] = 1 + rng.Uint64N(2)
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
			doc := document(d, n)
			doc.Lengths.Patches = n % 7 * uint32(d%3) // some have images
			c.docs[s] = append(c.docs[s], doc)
		}
		c.docs[s] = append(c.docs[s], document(docs, 1+rng.Uint32N(t)))
	}
	return c
}

// shy is a corpus that gives a fact only when asked for the second time or so.
type shy struct {
	*corpus
	rng  *rand.Rand
	seen map[[2]uint64]bool
}

func newShy(c *corpus, seed uint64) *shy {
	return &shy{c, rand.New(rand.NewPCG(seed, 11)), map[[2]uint64]bool{}}
}

func (s *shy) Peek(source int, ordinal millrace.Ordinal) (millrace.SampleMeta, Availability) {
	key := [2]uint64{uint64(source), uint64(ordinal)}
	if !s.seen[key] && s.rng.IntN(3) > 0 {
		s.seen[key] = s.rng.IntN(2) == 0
		return millrace.SampleMeta{}, Pending
	}
	s.seen[key] = true
	return s.corpus.Peek(source, ordinal)
}

func constant(t testing.TB, weights ...string) *mixing.Schedule {
	t.Helper()
	return schedule(t, mixing.Milestone{Weights: parseWeights(t, weights...)})
}

func schedule(t testing.TB, milestones ...mixing.Milestone) *mixing.Schedule {
	t.Helper()
	s, err := mixing.NewSchedule(len(milestones[0].Weights), milestones)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parseWeights(t testing.TB, texts ...string) []mixing.Weight {
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

// newSpec is a spec with sources a, b, … that leave when exhausted.
func newSpec(t testing.TB, seqlen uint32, batch int, weights ...string) *Spec {
	t.Helper()
	spec := &Spec{
		SequenceLength: seqlen, GlobalBatch: batch, PadMultiple: 1, Packing: millrace.BestFit, Unit: millrace.UnitTokens, LastStep: millrace.PadLast,
		Schedule: constant(t, weights...),
	}
	for i := range weights {
		spec.Sources = append(spec.Sources, SourceSpec{Name: string(rune('a' + i)), OnExhausted: millrace.Renormalize})
	}
	return spec
}

// randomSpec fits a random corpus.
func randomSpec(t testing.TB, rng *rand.Rand, sources int) *Spec {
	weights := make([]string, sources)
	for i := range weights {
		weights[i] = []string{"1", "0.25", "3", "0.001", "7"}[rng.IntN(5)]
	}
	spec := newSpec(t, []uint32{8, 64, 96}[rng.IntN(3)], 16*(1+rng.IntN(2)), weights...)
	spec.PadMultiple = []uint32{1, 1, 8}[rng.IntN(3)]
	spec.Unit = []millrace.Unit{millrace.UnitTokens, millrace.UnitSamples}[rng.IntN(2)]
	spec.Packing = []millrace.Packing{millrace.BestFit, millrace.BestFit, millrace.Pad, millrace.Concat, millrace.Bucketed}[rng.IntN(5)]
	spec.LastStep = []millrace.LastStep{millrace.PadLast, millrace.ShortLast}[rng.IntN(2)]
	spec.Window = []int{0, 1, 2, 4, 5}[rng.IntN(5)]
	if spec.Packing == millrace.BestFit || spec.Packing == millrace.Bucketed {
		spec.Carry = []int{0, 0, 1, 7, 512}[rng.IntN(5)]
	}
	return spec
}

// collect advances to the end or, if limit is not 0, to that many steps.
func collect(t testing.TB, spec *Spec, st State, o Offers, limit int) (steps []Selection, out Outcome, err error) {
	t.Helper()
	s, err := NewSelector(spec, st)
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
		case o.Kind == Finished:
			return steps, o, nil
		case o.Kind == Sealed:
			steps = append(steps, sel)
		}
	}
	t.Fatal("no end after a million calls")
	return nil, out, nil
}
