package seal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
)

// TestContentKnown: the expected digests come from Python:
// hashlib.blake2b(b"".join(name + b"\0" + struct.pack("<QQQ", ordinal, offset, length) …), digest_size=16).
func TestContentKnown(t *testing.T) {
	names := []string{"books", "web"}
	segs := []millrace.Segment{
		{Source: 1, Ordinal: 7, Offset: 0, Length: 2048, More: true},
		{Source: 0, Ordinal: 1 << 40, Offset: 4096, Length: 1},
		{Source: 1, Ordinal: 7, Offset: 2048, Length: 3},
		{Source: 0, Ordinal: 2, Offset: 0, Length: 4294967295},
	}
	if got := Content(names, segs).String(); got != "10fdb016d0f68bc289e3bff1c0a1cf71" {
		t.Errorf("content digest %s", got)
	}
	if got := Content(names, nil).String(); got != "cae66941d9efbd404e4d88758ea67670" {
		t.Errorf("digest of nothing %s", got)
	}
}

// TestContentOrder: the digest does not depend on the order of the segments, and changes with every segment. This also
// holds for more segments than one flush hashes.
func TestContentOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "bb", "ccc"}
	segs := make([]millrace.Segment, 3000)
	for i := range segs {
		segs[i] = millrace.Segment{
			Source:  uint32(i % 3),
			Ordinal: millrace.Ordinal(i / 6),
			Offset:  uint32(i % 2),
			Length:  1 + rng.Uint32N(9),
		}
	}
	want := Content(names, segs)
	for range 5 {
		rng.Shuffle(len(segs), func(i, j int) { segs[i], segs[j] = segs[j], segs[i] })
		if got := Content(names, segs); got != want {
			t.Fatalf("shuffled: %s, want %s", got, want)
		}
	}
	segs[1234].Length++
	if Content(names, segs) == want {
		t.Error("a longer segment has the same digest")
	}
}

func testPlan(ranks, microbatches uint32) (*millrace.Plan, millrace.Shape) {
	p := &millrace.Plan{Step: 5, Ranks: ranks, Microbatches: microbatches}
	for r := range ranks {
		for m := range microbatches {
			for i := range (r + m) % 3 { // some parts are empty
				seg := millrace.Segment{
					Source:  i,
					Ordinal: millrace.Ordinal(r*100 + m),
					Length:  9,
					ID:      millrace.SampleID{Shard: r, Record: 4},
				}
				p.Assignments = append(p.Assignments,
					millrace.Assignment{Segment: seg, Rank: millrace.Rank(r), Microbatch: m, Start: 9 * i})
			}
		}
	}
	shape := millrace.Shape{SequenceLength: 64, MicroBatch: 2, Layout: millrace.Packed, TokenDtype: millrace.Int64}
	p.Leaves, p.Placement = Placement(p, shape)
	return p, shape
}

// TestPlacementKnown: the expected digest comes from a Python program after the layout in doc.go.
func TestPlacementKnown(t *testing.T) {
	p, _ := testPlan(1, 3)
	if got := p.Placement.String(); got != "7c40ee24118a478be8d096504e3e9acd" {
		t.Errorf("placement digest %s", got)
	}
}

func TestVerify(t *testing.T) {
	for _, dims := range [][2]uint32{{1, 1}, {3, 1}, {2, 4}, {5, 3}} {
		p, shape := testPlan(dims[0], dims[1])
		if err := VerifyRoot(p, shape); err != nil {
			t.Fatal(err)
		}
		for r := range dims[0] {
			for m := range dims[1] {
				// A constructor receives its own part and all leaves.
				own := *p
				own.Assignments = slices.Clone(p.Part(millrace.Rank(r), m))
				if err := VerifyPart(&own, millrace.Rank(r), m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	for name, change := range map[string]func(*millrace.Plan, *millrace.Shape){
		"segment":  func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].Length++ },
		"start":    func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].Start++ },
		"row":      func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].Row++ },
		"more":     func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].More = true },
		"epoch":    func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].Epoch++ },
		"record":   func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].ID.Record++ },
		"step":     func(p *millrace.Plan, _ *millrace.Shape) { p.Step++ },
		"left out": func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments = p.Assignments[1:] },
		"patches":  func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].Patches++ },
		"part": func(p *millrace.Plan, _ *millrace.Shape) {
			p.Assignments[0].Parts, p.Assignments[0].Part = 3, 1
		},
		"moved":        func(p *millrace.Plan, _ *millrace.Shape) { p.Assignments[0].Microbatch = 0 },
		"leaf":         func(p *millrace.Plan, _ *millrace.Shape) { p.Leaves[3][0]++ },
		"leaves":       func(p *millrace.Plan, _ *millrace.Shape) { p.Leaves = p.Leaves[:3] },
		"ranks":        func(p *millrace.Plan, _ *millrace.Shape) { p.Ranks, p.Microbatches = p.Microbatches, p.Ranks },
		"no ranks":     func(p *millrace.Plan, _ *millrace.Shape) { p.Ranks, p.Leaves = 0, nil },
		"layout":       func(_ *millrace.Plan, s *millrace.Shape) { s.Layout = millrace.Varlen },
		"micro batch":  func(_ *millrace.Plan, s *millrace.Shape) { s.MicroBatch++ },
		"sequence":     func(_ *millrace.Plan, s *millrace.Shape) { s.SequenceLength++ },
		"root":         func(p *millrace.Plan, _ *millrace.Shape) { p.Placement[15]++ },
		"microbatches": func(p *millrace.Plan, _ *millrace.Shape) { p.Microbatches++ },
	} {
		p, shape := testPlan(2, 4)
		change(p, &shape)
		err := VerifyRoot(p, shape)
		for r := range millrace.Rank(2) {
			for m := range uint32(4) {
				err = errors.Join(err, VerifyPart(p, r, m))
			}
		}
		if !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("%s: accepted", name)
		}
	}
	p, _ := testPlan(2, 4)
	if err := VerifyPart(p, 2, 0); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("a rank beyond the plan: %v", err)
	}
}

func BenchmarkSeal(b *testing.B) {
	p := &millrace.Plan{Ranks: 1024, Microbatches: 8}
	segs := make([]millrace.Segment, 0, 1<<16)
	for i := range uint32(1 << 16) {
		seg := millrace.Segment{Ordinal: millrace.Ordinal(i), Length: 900}
		segs = append(segs, seg)
		p.Assignments = append(p.Assignments,
			millrace.Assignment{Segment: seg, Rank: millrace.Rank(i / 64), Microbatch: i / 8 % 8})
	}
	b.Run("content", func(b *testing.B) {
		for b.Loop() {
			Content([]string{"web"}, segs)
		}
	})
	b.Run("placement", func(b *testing.B) {
		for b.Loop() {
			Placement(p, millrace.Shape{})
		}
	})
}
