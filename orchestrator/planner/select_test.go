package planner_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"millrace"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// checkStep checks any selection: bins hold segments that fit, and documents are cut only at allowed places.
func checkStep(t *testing.T, spec *planner.Spec, sel *planner.Selection) {
	t.Helper()
	held := make([]uint64, sel.NumBins)
	for i, seg := range sel.Segments {
		held[sel.Bin[i]] += uint64(spec.Units(seg.Length)) * uint64(max(spec.PadMultiple, 1))
		bad := seg.More && seg.Length != spec.SequenceLength || seg.Offset%spec.SequenceLength != 0
		if spec.Packing == millrace.Concat {
			piece := spec.Sources[seg.Source].PieceTokens
			isPiece := piece > 0 && (seg.Offset+seg.Length)%piece == 0
			bad = seg.More && !isPiece && held[sel.Bin[i]] != uint64(spec.SequenceLength)
		}
		if bad || seg.Length == 0 || seg.Length > spec.SequenceLength {
			t.Fatalf("step %s: segment %+v is cut at a forbidden place", sel.Step, seg)
		}
	}
	batch, length := spec.GlobalBatch, spec.SequenceLength
	if spec.Packing == millrace.Bucketed && spec.BucketRows == bucket.Tokens {
		batch, length = checkTokenRows(t, spec, sel)
	}
	for b, n := range held {
		if n == 0 || n > uint64(length) ||
			spec.Packing == millrace.Concat && spec.Window < 2 && n != uint64(spec.SequenceLength) && !sel.Last {
			t.Fatalf("step %s: bin %d holds %d of %d", sel.Step, b, n, length)
		}
	}
	if sel.NumBins > batch || sel.NumBins < batch && !sel.Incomplete || sel.Incomplete && !sel.Last {
		t.Fatalf("step %s: %d of %d bins, incomplete %v, last %v", sel.Step, sel.NumBins, batch, sel.Incomplete,
			sel.Last)
	}
}

// place is the position of a token in a document. The property tests use it as a key.
type place struct {
	source  uint32
	ordinal millrace.Ordinal
	offset  uint32
}

// deficit returns a target minus the charges placed, in parts of mixing.One.
func deficit(t mixing.Target, placed int64) int64 {
	return (t.Whole-placed)*mixing.One + int64(t.Parts)
}

func TestEveryTokenOnce(t *testing.T) {
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 1))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(4))
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 150, spec.SequenceLength)
		c.SomeInPieces(rng, spec)
		steps, out, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), c, 0)
		if err != nil || out.Reason != planner.SourcesThrough || len(out.Unread) > 0 {
			t.Fatalf("seed %d: %+v, %v", seed, out, err)
		}
		seen := map[place]uint32{}
		rejects := 0
		for i := range steps {
			checkStep(t, spec, &steps[i])
			if steps[i].Step != millrace.Step(i) || steps[i].Last != (i == len(steps)-1) {
				t.Fatalf("seed %d: step %d says it is %s, last %v", seed, i, steps[i].Step, steps[i].Last)
			}
			rejects += len(steps[i].Rejects)
			for _, seg := range steps[i].Segments {
				key := place{seg.Source, seg.Ordinal, seg.Offset}
				if _, twice := seen[key]; twice {
					t.Fatalf("seed %d: %+v is there twice", seed, seg)
				}
				meta, _ := c.Peek(int(seg.Source), seg.Ordinal)
				if seg.More != (seg.Offset+seg.Length < meta.Lengths.Tokens) {
					t.Fatalf("seed %d: %+v of a document of %d tokens", seed, seg, meta.Lengths.Tokens)
				}
				seen[key] = seg.Length
			}
		}
		wantRejects := 0
		for s, docs := range c.Docs {
			for o := range uint64(len(docs)) * c.Epochs[s] {
				meta, _ := c.Peek(s, millrace.Ordinal(o))
				if meta.Rejected {
					wantRejects++
				}
				got, end := meta.Offset, meta.Lengths.Tokens
				if piece := spec.Sources[s].PieceTokens; piece > 0 {
					end = min(end, got+piece)
				}
				for n := uint32(1); got < end && n > 0; got += n {
					n = seen[place{uint32(s), millrace.Ordinal(o), got}]
				}
				if got != end {
					t.Fatalf("seed %d: ordinal %d/%d has tokens up to %d of %d placed", seed, s, o, got, end)
				}
			}
		}
		if rejects != wantRejects {
			t.Fatalf("seed %d: %d rejects listed, the sources have %d", seed, rejects, wantRejects)
		}
	}
}

// TestWaitingDoesNotChangeSteps compares a run that has all metadata with a run that must wait for it. It also compares
// runs that restart from the state after every step.
func TestWaitingDoesNotChangeSteps(t *testing.T) {
	for seed := range uint64(80) {
		rng := rand.New(rand.NewPCG(seed, 2))
		spec := plannertest.RandomSpec(t, rng, 1+rng.IntN(4))
		spec.LastStep = []millrace.LastStep{millrace.PadLast, millrace.DropLast}[seed%2]
		if seed%3 == 0 {
			spec.Schedule = restless(t, rng, len(spec.Sources))
		}
		c := plannertest.RandomCorpus(rng, len(spec.Sources), 100, spec.SequenceLength)
		if seed%2 == 1 {
			c.SomeInPieces(rng, spec)
		}
		spec.Sources[0].OnExhausted = []millrace.OnExhausted{
			millrace.Renormalize, millrace.StopRun, millrace.FailRun, millrace.Renormalize,
		}[seed/2%4]
		want, wantOut, wantErr := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), c, 0)
		got, out, err := plannertest.Collect(t, spec, progress.New(len(spec.Sources)), plannertest.NewShy(c, seed), 0)
		if !reflect.DeepEqual(want, got) || !reflect.DeepEqual(out, wantOut) || !sameError(err, wantErr) {
			t.Fatalf("seed %d: waiting changed the stream: %d steps, %+v, %v; want %d steps, %+v, %v", seed, len(got),
				out, err, len(want), wantOut, wantErr)
		}
		for k := range want {
			st, err := progress.Parse(want[k].After.Compact())
			if err != nil || !st.Equal(want[k].After) {
				t.Fatalf("seed %d: state after step %d does not survive: %v\n%s", seed, k, err, want[k].After)
			}
			rest, out, err := plannertest.Collect(t, spec, st, newAbove(t, plannertest.NewShy(c, seed+uint64(k)), st),
				0)
			if len(rest) != len(want)-k-1 || len(rest) > 0 && !reflect.DeepEqual(rest, want[k+1:]) ||
				!reflect.DeepEqual(out, wantOut) ||
				!sameError(err, wantErr) {
				t.Fatalf("seed %d: restarted after step %d: %d steps, %+v, %v; want %d, %+v, %v", seed, k, len(rest),
					out, err, len(want)-k-1, wantOut, wantErr)
			}
		}
	}
}

// restless is a schedule in which sources come, go and ramp.
func restless(t *testing.T, rng *rand.Rand, sources int) *mixing.Schedule {
	milestones := make([]mixing.Milestone, 4)
	measure := mixing.Measure(rng.IntN(2))
	for k := range milestones {
		weights := make([]string, sources)
		for i := range weights {
			weights[i] = []string{"0", "1", "2.5"}[rng.IntN(3)]
		}
		weights[rng.IntN(sources)] = "1"
		milestones[k] = mixing.Milestone{
			From:    mixing.Point{Measure: measure},
			Weights: plannertest.Weights(t, weights...),
		}
		if k > 0 {
			far := []uint64{2, 1500}[measure]
			milestones[k].From.Count = uint64(k) * far
			milestones[k].Ramp = mixing.Ramps()[rng.IntN(len(mixing.Ramps()))]
			if milestones[k].Ramp != mixing.RampNone {
				milestones[k].Over = mixing.Point{Measure: measure, Count: far}
			}
		}
	}
	return plannertest.Schedule(t, milestones...)
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// TestMixtureBound: after every step each source is within two longest segments of its share of the tokens, or within
// one sample of its share of the samples.
func TestMixtureBound(t *testing.T) {
	for _, unit := range []millrace.Unit{millrace.UnitTokens, millrace.UnitSamples} {
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 3))
			spec := plannertest.NewSpec(t, 128, 32, "60", "25", "10", "4", "1")
			spec.Unit = unit
			c := plannertest.RandomCorpus(rng, 5, 400, spec.SequenceLength)
			for s := range c.Epochs {
				c.Epochs[s], spec.Sources[s].OnExhausted = 0, millrace.Repeat
			}
			if seed%2 == 1 {
				c.SomeInPieces(rng, spec)
			}
			steps, _, err := plannertest.Collect(t, spec, progress.New(5), c, 100)
			if err != nil {
				t.Fatal(err)
			}
			bound := int64(2*spec.SequenceLength) * mixing.One
			if unit == millrace.UnitSamples {
				bound = mixing.One
			}
			placed, targets := make([]int64, 5), make([]mixing.Target, 5)
			for i := range steps {
				for _, seg := range steps[i].Segments {
					charge := int64(seg.Length)
					if unit == millrace.UnitSamples {
						piece := spec.Sources[seg.Source].PieceTokens
						if seg.Offset > 0 && (piece == 0 || seg.Offset%piece > 0) {
							continue
						}
						charge = 1
					}
					placed[seg.Source] += charge
					for s := range targets {
						targets[s] = targets[s].Plus(steps[i].Stats.Sources[s].Share, charge)
					}
					for s := range targets {
						if gap := deficit(targets[s], placed[s]); max(gap, -gap) > bound {
							t.Fatalf("%s, seed %d, step %d: source %d deviates by %d, bound %d", unit, seed, i, s,
								gap/mixing.One, bound/mixing.One)
						}
					}
				}
				for s, src := range steps[i].After.Sources {
					if src.Deficit != deficit(targets[s], placed[s]) {
						t.Fatalf("%s, seed %d, step %d: the state says source %d has a deficit of %d, it has %d", unit,
							seed, i, s, src.Deficit, deficit(targets[s], placed[s]))
					}
				}
			}
		}
	}
}

// TestExactlyFullSaysLast: four documents fill two steps to the token.
func TestExactlyFullSaysLast(t *testing.T) {
	spec := plannertest.NewSpec(t, 10, 2, "1")
	c := &plannertest.Corpus{
		Docs: [][]millrace.SampleMeta{
			{plannertest.Document(1, 10), plannertest.Document(3, 10), plannertest.Document(5, 20)},
		},
		Epochs: []uint64{1},
	}
	for _, offers := range []planner.Offers{c, plannertest.NewShy(c, 4)} {
		steps, out, err := plannertest.Collect(t, spec, progress.New(1), offers, 0)
		if err != nil || len(steps) != 2 || steps[0].Last || !steps[1].Last || steps[1].Incomplete ||
			out.Reason != planner.SourcesThrough {
			t.Fatalf("got %d steps, %+v, %v", len(steps), out, err)
		}
	}
}

func TestStops(t *testing.T) {
	c := &plannertest.Corpus{
		Docs: [][]millrace.SampleMeta{
			{plannertest.Document(1, 7), plannertest.Document(3, 4)},
			{plannertest.Document(1, 10)},
		},
		Epochs: []uint64{0, 10},
	}
	for _, tt := range []struct {
		name   string
		change func(*planner.Spec)
		steps  int
		reason planner.Reason
		unread []string
	}{
		{"steps", func(s *planner.Spec) { s.StopSteps = 3 }, 3, planner.StepsReached, nil},
		{"tokens", func(s *planner.Spec) { s.StopTokens = 45 }, 2, planner.TokensReached, nil},
		{"steps inside a window", func(s *planner.Spec) { s.StopSteps, s.Window = 2, 4 }, 2, planner.StepsReached, nil},
		{
			"tokens inside a window", func(s *planner.Spec) { s.StopTokens, s.Window = 45, 4 }, 2,
			planner.TokensReached, nil,
		},
		{
			"stop source, windows", func(s *planner.Spec) { s.Sources[1].OnExhausted, s.Window = millrace.StopRun, 4 },
			6, planner.SourceStopped, []string{"a"},
		},
		{"stop source, drop, windows", func(s *planner.Spec) {
			s.Sources[1].OnExhausted, s.Window = millrace.StopRun, 4
			s.LastStep = millrace.DropLast
		}, 5, planner.SourceStopped, []string{"a"}},
		{
			"stop source, carry", func(s *planner.Spec) { s.Sources[1].OnExhausted, s.Carry = millrace.StopRun, 4 }, 6,
			planner.SourceStopped, []string{"a"},
		},
		{
			"stop source", func(s *planner.Spec) { s.Sources[1].OnExhausted = millrace.StopRun }, 7,
			planner.SourceStopped, []string{"a"},
		},
		{
			"stop source, drop",
			func(s *planner.Spec) { s.Sources[1].OnExhausted = millrace.StopRun; s.LastStep = millrace.DropLast }, 6,
			planner.SourceStopped, []string{"a"},
		},
		{
			"weight for one alone", func(s *planner.Spec) { s.Schedule = plannertest.Constant(t, "0", "1") }, 3,
			planner.SourcesThrough, []string{"a"},
		},
		{
			"one alone, drop",
			func(s *planner.Spec) { s.Schedule = plannertest.Constant(t, "0", "1"); s.LastStep = millrace.DropLast }, 2,
			planner.SourcesThrough, []string{"a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := plannertest.NewSpec(t, 10, 4, "1", "1")
			spec.Sources[0].OnExhausted = millrace.Repeat
			tt.change(spec)
			steps, out, err := plannertest.Collect(t, spec, progress.New(2), plannertest.NewShy(c, 1), 0)
			if err != nil || len(steps) != tt.steps || out.Reason != tt.reason || !slices.Equal(out.Unread, tt.unread) {
				t.Fatalf("got %d steps, %+v, %v; want %d, %s, %v", len(steps), out, err, tt.steps, tt.reason, tt.unread)
			}
			for i := range steps {
				if steps[i].Last != (i == len(steps)-1) {
					t.Fatalf("step %d of %d says last %v", i, len(steps), steps[i].Last)
				}
			}
			if _, again, err := plannertest.Collect(t, spec, steps[len(steps)-1].After, c, 0); err != nil ||
				again.Reason != tt.reason ||
				!slices.Equal(again.Unread, tt.unread) {
				t.Fatalf("restarted at the end: %+v, %v", again, err)
			}
		})
	}
}

// TestLaterPhases: a source that only a later milestone draws is drawn as soon as the others have ended.
func TestLaterPhases(t *testing.T) {
	spec := plannertest.NewSpec(t, 10, 2, "1", "1", "1")
	spec.Schedule = plannertest.Schedule(t,
		mixing.Milestone{Weights: plannertest.Weights(t, "1", "0", "0")},
		mixing.Milestone{From: mixing.Point{Count: 100}, Weights: plannertest.Weights(t, "0", "1", "0")},
		mixing.Milestone{From: mixing.Point{Count: 200}, Weights: plannertest.Weights(t, "0", "0", "1")})
	one := []millrace.SampleMeta{plannertest.Document(1, 10), plannertest.Document(3, 10), plannertest.Document(5, 10)}
	c := &plannertest.Corpus{Docs: [][]millrace.SampleMeta{one, one, one}, Epochs: []uint64{1, 1, 1}}
	steps, out, err := plannertest.Collect(t, spec, progress.New(3), plannertest.NewShy(c, 3), 0)
	if err != nil || out.Reason != planner.SourcesThrough || len(out.Unread) > 0 || len(steps) != 5 {
		t.Fatalf("got %d steps, %+v, %v", len(steps), out, err)
	}
	var order []uint32
	for i := range steps {
		for _, seg := range steps[i].Segments {
			order = append(order, seg.Source)
		}
	}
	if !slices.Equal(order, []uint32{0, 0, 0, 1, 1, 1, 2, 2, 2}) {
		t.Fatalf("drawn in the order %v", order)
	}
}

func TestErrors(t *testing.T) {
	empty := []millrace.SampleMeta{plannertest.Document(0, 0), plannertest.Document(1, 0)}
	full := []millrace.SampleMeta{plannertest.Document(1, 5)}
	for _, tt := range []struct {
		name   string
		on     millrace.OnExhausted
		last   millrace.LastStep
		docs   [][]millrace.SampleMeta
		epochs []uint64
		is     error
		typed  bool
	}{
		{
			"exhausted", millrace.FailRun, millrace.PadLast, [][]millrace.SampleMeta{full, full}, []uint64{3, 0},
			millrace.ErrInvalid, true,
		},
		{
			"repeat of nothing", millrace.Repeat, millrace.PadLast, [][]millrace.SampleMeta{nil, full}, []uint64{0, 0},
			millrace.ErrInvalid, true,
		},
		{
			"repeat of empty documents", millrace.Repeat, millrace.PadLast, [][]millrace.SampleMeta{empty, full},
			[]uint64{0, 0}, millrace.ErrInvalid, true,
		},
		{
			"empty run", millrace.Renormalize, millrace.PadLast, [][]millrace.SampleMeta{empty, empty}, []uint64{1, 1},
			millrace.ErrInvalid, false,
		},
		{
			"dropped run", millrace.Renormalize, millrace.DropLast, [][]millrace.SampleMeta{full, full}, []uint64{1, 1},
			millrace.ErrInvalid, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := plannertest.NewSpec(t, 10, 4, "1", "1")
			spec.Sources[0].OnExhausted = tt.on
			spec.LastStep = tt.last
			steps, _, err := plannertest.Collect(t, spec, progress.New(2),
				plannertest.NewShy(&plannertest.Corpus{Docs: tt.docs, Epochs: tt.epochs}, 1), 50)
			var typed *planner.ExhaustedError
			if len(steps) > 0 || !errors.Is(err, tt.is) || errors.As(err, &typed) != tt.typed ||
				tt.typed && typed.Source != "a" {
				t.Fatalf("got %d steps and %v", len(steps), err)
			}
		})
	}
}

// TestAnotherDocument: a cursor in the middle of a document refuses a document that is too short to contain it.
func TestAnotherDocument(t *testing.T) {
	spec := plannertest.NewSpec(t, 10, 2, "1")
	st := progress.New(1)
	st.Tokens, st.Sources[0] = 10, progress.Source{Offset: 10, Tokens: 10, Samples: 1}
	for _, docs := range [][]millrace.SampleMeta{{plannertest.Document(1, 10)}, nil} {
		_, _, err := plannertest.Collect(t, spec, st,
			&plannertest.Corpus{Docs: [][]millrace.SampleMeta{docs}, Epochs: []uint64{1}}, 0)
		if !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("%d documents: got %v", len(docs), err)
		}
	}
}
