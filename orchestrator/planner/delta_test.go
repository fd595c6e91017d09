package planner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/plannertest"
	"millrace/orchestrator/planner/progress"
)

// randomSchedule has up to four milestones, with and without ramps, in steps or tokens. Each leaves some sources
// without weight.
func randomSchedule(t testing.TB, rng *rand.Rand, sources int) *mixing.Schedule {
	measure := []mixing.Measure{mixing.Steps, mixing.Tokens}[rng.IntN(2)]
	unit := map[mixing.Measure]uint64{mixing.Steps: 1, mixing.Tokens: 900}[measure]
	var milestones []mixing.Milestone
	ramps := mixing.Ramps()
	for at := uint64(0); len(milestones) < 1+rng.IntN(4); at += unit * (1 + rng.Uint64N(6)) {
		weights := make([]string, sources)
		for i := range weights {
			weights[i] = []string{"1", "0.25", "3", "0", "1e-9", "7"}[rng.IntN(6)]
		}
		weights[rng.IntN(sources)] = "2"
		k := mixing.Milestone{
			From:    mixing.Point{Measure: measure, Count: at},
			Weights: plannertest.Weights(t, weights...),
		}
		if len(milestones) > 0 && rng.IntN(3) > 0 {
			k.Ramp, k.Over = ramps[1+rng.IntN(len(ramps)-1)], mixing.Point{
				Measure: measure,
				Count:   unit * (1 + rng.Uint64N(9)),
			}
		}
		milestones = append(milestones, k)
	}
	return plannertest.Schedule(t, milestones...)
}

// TestDeltasLeadAlongEveryRun: under any mixture, deltas lead from the first state through each state of the run: by
// one Differ from the start, and by a fresh one at every step. They carry seek points, sources that leave, and the end.
func TestDeltasLeadAlongEveryRun(t *testing.T) {
	steps, left := 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 41))
		sources := []int{1, 2, 3, 7, 40}[rng.IntN(5)]
		spec := plannertest.RandomSpec(t, rng, sources)
		spec.Schedule = randomSchedule(t, rng, sources)
		spec.LastStep = []millrace.LastStep{millrace.PadLast, millrace.ShortLast, millrace.DropLast}[rng.IntN(3)]
		for i := range spec.Sources {
			spec.Sources[i].Name = fmt.Sprintf("s%03d", i)
			spec.Sources[i].OnExhausted = []millrace.OnExhausted{
				millrace.Renormalize, millrace.Renormalize, millrace.Renormalize, millrace.StopRun,
			}[rng.IntN(4)]
		}
		c := anchored{plannertest.RandomCorpus(rng, sources, 60, spec.SequenceLength)}
		run, _, err := plannertest.Collect(t, spec, progress.New(sources), c, 60)
		if err != nil && len(run) == 0 {
			continue
		}
		writer, reader, before := planner.NewDiffer(spec), planner.NewDiffer(spec), progress.New(sources)
		for i := range run {
			delta, err := writer.Diff(before, run[i].After, run[i].Legs...)
			if err != nil {
				t.Fatalf("seed %d step %d: %v", seed, i, err)
			}
			for _, d := range []*progress.Differ{reader, planner.NewDiffer(spec)} {
				got := before.Clone()
				if err := d.Apply(&got, delta); err != nil || !got.Equal(run[i].After) {
					t.Fatalf("seed %d step %d: %s leads to\n%s, not\n%s: %v", seed, i, before, got, run[i].After, err)
				}
			}
			counted := before.Clone()
			if err := planner.NewDiffer(nil).Apply(&counted, delta); err != nil ||
				counted.Tokens != run[i].After.Tokens ||
				counted.Sources[0].Ordinal != run[i].After.Sources[0].Ordinal {
				t.Fatalf("seed %d step %d: without a spec the counters are %s: %v", seed, i, counted, err)
			}
			if slices.ContainsFunc(run[i].After.Sources, func(s progress.Source) bool { return s.Finished }) {
				left++
			}
			for n := range delta { // a delta that is cut off anywhere is refused
				cut := before.Clone()
				if err := reader.Apply(&cut, delta[:n]); err == nil {
					t.Fatalf("seed %d step %d: the first %d of %d bytes are accepted", seed, i, n, len(delta))
				}
			}
			before = run[i].After
			steps++
		}
	}
	if steps < 1000 || left < 100 {
		t.Errorf("only %d steps, %d of them after a source had left", steps, left)
	}
}

// many is a mixture of a thousand sources. A few documents fill a step.
func many(t testing.TB, ramp mixing.Ramp) (*planner.Spec, *plannertest.Corpus) {
	const n = 1000
	rng := rand.New(rand.NewPCG(5, 5))
	first, second := make([]string, n), make([]string, n)
	c := &plannertest.Corpus{Docs: make([][]millrace.SampleMeta, n), Epochs: make([]uint64, n)}
	for i := range n {
		first[i], second[i] = fmt.Sprint(1+rng.IntN(1000)), fmt.Sprint(1+rng.IntN(1000))
		c.Docs[i] = []millrace.SampleMeta{plannertest.Document(0, 4096-rng.Uint32N(500)), plannertest.Document(1, 3000)}
	}
	spec := plannertest.NewSpec(t, 4096, 3, first[:1]...)
	milestones := []mixing.Milestone{{Weights: plannertest.Weights(t, first...)}}
	if ramp != mixing.RampNone {
		milestones = append(milestones, mixing.Milestone{
			From:    mixing.Point{Count: 5},
			Weights: plannertest.Weights(t, second...),
			Ramp:    ramp,
			Over:    mixing.Point{Count: 100},
		})
	}
	spec.Schedule, spec.Sources = plannertest.Schedule(t, milestones...), nil
	for i := range n {
		spec.Sources = append(spec.Sources,
			planner.SourceSpec{Name: fmt.Sprintf("s%04d", i), OnExhausted: millrace.Renormalize})
	}
	return spec, c
}

// TestDeltaSizeFollowsDraws: of a thousand sources, those that were not drawn cost no byte, with a constant
// mixture and with ramps.
func TestDeltaSizeFollowsDraws(t *testing.T) {
	for _, ramp := range mixing.Ramps() {
		spec, c := many(t, ramp)
		run, _, err := plannertest.Collect(t, spec, progress.New(1000), anchored{c}, 150)
		if err != nil {
			t.Fatal(err)
		}
		d, before, largest := planner.NewDiffer(spec), progress.New(1000), 0
		for i := range run {
			delta, err := d.Diff(before, run[i].After)
			if err != nil {
				t.Fatal(err)
			}
			drawn := map[uint32]bool{}
			for _, s := range run[i].Segments {
				drawn[s.Source] = true
			}
			if i > 0 && len(delta) > 8+32*len(drawn) { // seek points of all sources come with the first step
				t.Fatalf("%s, step %d: %d bytes for %d sources drawn", ramp, i, len(delta), len(drawn))
			}
			if i > 0 {
				largest = max(largest, len(delta))
			}
			before = run[i].After
		}
		t.Logf("ramp %s: at most %d bytes a step", ramp, largest)
	}
}

// TestWindowDeltaSizeFollowsDraws: the same with carry and windows. The last step of a window has the changes
// of all its steps.
func TestWindowDeltaSizeFollowsDraws(t *testing.T) {
	for _, ramp := range []mixing.Ramp{mixing.RampNone, mixing.RampCosine} {
		spec, c := many(t, ramp)
		spec.Window, spec.Carry = 4, 8
		run, _, err := plannertest.Collect(t, spec, progress.New(1000), anchored{c}, 150)
		if err != nil {
			t.Fatal(err)
		}
		d, before, segments, waited := planner.NewDiffer(spec), progress.New(1000), 0, 0
		for i := range run {
			delta, err := d.Diff(before, run[i].After, run[i].Legs...)
			if err != nil {
				t.Fatal(err)
			}
			segments += len(run[i].Segments)
			if inside := run[i].After.Done.Steps > 0; inside && len(delta) > 16 ||
				!inside && i > 3 && len(delta) > 64+32*(segments+len(run[i].After.Carried)) {
				t.Fatalf("%s, step %d: %d bytes for a window of %d segments", ramp, i, len(delta), segments)
			}
			if run[i].After.Done == (progress.Done{}) {
				segments, waited = 0, waited+len(run[i].After.Carried)
			}
			before = run[i].After
		}
		if waited == 0 {
			t.Error("nothing waited")
		}
	}
}

// TestDeltaOfLeaveIsBounded: a source that leaves inside a step changes all shares there, which the prediction does not
// cover.
func TestDeltaOfLeaveIsBounded(t *testing.T) {
	spec, c := many(t, mixing.RampNone)
	for i := range c.Epochs {
		c.Epochs[i] = 1
	}
	run, _, err := plannertest.Collect(t, spec, progress.New(1000), c, 60)
	if err != nil {
		t.Fatal(err)
	}
	d, before, largest := planner.NewDiffer(spec), progress.New(1000), 0
	for i := range run {
		delta, err := d.Diff(before, run[i].After)
		if err != nil {
			t.Fatal(err)
		}
		largest, before = max(largest, len(delta)), run[i].After
	}
	if largest > 10_000 {
		t.Errorf("%d bytes", largest)
	}
}

func TestDeltaRefused(t *testing.T) {
	d := planner.NewDiffer(plannertest.NewSpec(t, 10, 4, "1", "2"))
	before, after := progress.New(2), progress.New(2)
	after.Step, after.Tokens = 1, 12
	after.Sources[1] = progress.Source{
		Ordinal:   3,
		Offset:    2,
		Epoch:     1,
		Tokens:    12,
		Samples:   4,
		Deficit:   9,
		Finished:  true,
		SeekPoint: millrace.SeekPoint{Ordinal: 2, EpochStart: 1, Shard: 9, Block: 8, Record: 7},
	}
	good, err := d.Diff(before, after)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]progress.Delta{
		"empty": {}, "another version": append(progress.Delta{9}, good[1:]...), "cut": good[:len(good)-1],
		"longer": append(slices.Clone(good), 0), "beyond": {1, 1, 2, 0}, "no end": {1, 0x80},
		"count": {1, 200, 0},
	} {
		if err := d.Apply(
			&progress.State{Version: progress.PlannerVersion, Sources: make([]progress.Source, 2)}, bad,
		); err == nil {
			t.Errorf("%s: %x is accepted", name, bad)
		}
	}
	for n := range good { // a delta that is cut off anywhere is refused
		if err := d.Apply(
			&progress.State{Version: progress.PlannerVersion, Sources: make([]progress.Source, 2)}, good[:n],
		); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(good))
		}
	}
	after.Step = 2
	if _, err := d.Diff(before, after); err == nil {
		t.Error("two steps in one delta are accepted")
	}
	after.Step, after.Tokens = 1, 13
	if _, err := d.Diff(before, after); err == nil {
		t.Error("a state whose tokens do not add up is accepted")
	}
}
