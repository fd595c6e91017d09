package sim

import (
	"fmt"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
)

// setting is a row of the table: a kind of run. Every new key of the mixture file gets a row.
type setting struct {
	name       string
	shuffle    millrace.Shuffle
	epochs     uint32 // passes of every source; 0: endless
	bad        bool   // some records cannot be decoded
	refused    bool   // refused by filters: bit 0 every third record, bit 1 every fifth
	milestones []mixing.Milestone
	change     func(*planner.Spec)
	options    place.Options
	axes       millrace.Topology // without Ranks; 0 is 1

	spec    *planner.Spec
	streams map[string]*stream
}

func settings(t *testing.T) []*setting {
	w := func(texts ...string) (out []mixing.Weight) {
		for _, text := range texts {
			weight, err := mixing.ParseWeight(text)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, weight)
		}
		return out
	}
	plain := []mixing.Milestone{{Weights: w("0.5", "0.2", "0.3")}}
	steps := func(n uint64) mixing.Point { return mixing.Point{Measure: mixing.Steps, Count: n} }
	tokens := func(n uint64) mixing.Point { return mixing.Point{Measure: mixing.Tokens, Count: n} }
	packed := place.Options{Layout: millrace.Packed, Balance: millrace.BalanceFSDP}
	return []*setting{
		{name: "best fit, global, one epoch", shuffle: millrace.Global, epochs: 1, milestones: plain, options: packed},
		{
			name:       "varlen, dp, blocks, two epochs, last step short",
			shuffle:    millrace.Blocks,
			epochs:     2,
			milestones: plain,
			options:    place.Options{Layout: millrace.Varlen, Balance: millrace.BalanceDP, CapPermille: 1250},
			change:     func(s *planner.Spec) { s.LastStep, s.PadMultiple = millrace.ShortLast, 8 },
		},
		{name: "varlen, documents split over ranks, an encoder", shuffle: millrace.Global, epochs: 1, milestones: plain,
			options: place.Options{
				Layout:      millrace.Varlen,
				Balance:     millrace.BalanceFSDP,
				CapPermille: 1500,
				Split:       place.Split{On: true},
				Cost:        cost.Cost{Linear: 1, Quadratic: 3, Encoder: cost.Encoder{Linear: 5}},
			}},
		{
			name:       "two pipeline stages of four context-parallel ranks that hold short documents whole",
			shuffle:    millrace.Global,
			epochs:     1,
			milestones: plain,
			options: place.Options{
				Layout:  millrace.Varlen,
				Balance: millrace.BalanceFSDP,
				Local:   40,
			},
			axes:   millrace.Topology{TP: 1, CP: 4, PP: 2},
			change: func(s *planner.Spec) { s.PadMultiple = 8 },
		},
		{
			name:       "pad, no shuffle, no balance, samples, last step dropped, bad records",
			shuffle:    millrace.InFileOrder,
			epochs:     1,
			bad:        true,
			milestones: plain,
			options:    place.Options{Layout: millrace.Packed, Balance: millrace.BalanceNone},
			change: func(s *planner.Spec) {
				s.Packing, s.Unit, s.LastStep = millrace.Pad, millrace.UnitSamples, millrace.DropLast
			},
		},
		{
			name:    "endless, milestones and ramps by steps, so many steps, bad records, blocks",
			shuffle: millrace.Blocks,
			bad:     true,
			options: packed,
			milestones: []mixing.Milestone{
				{Weights: w("1", "0", "1")},
				{From: steps(20), Weights: w("1", "3", "0"), Ramp: mixing.RampLinear, Over: steps(30)},
				{
					From:    steps(70),
					Weights: w("0", "1", "0"),
				},
				{From: steps(90), Weights: w("2", "1", "5"), Ramp: mixing.RampCosine, Over: steps(40)},
			},
			change: func(s *planner.Spec) { s.StopSteps = 150 },
		},
		{name: "endless, a ramp by tokens, so many tokens, samples", shuffle: millrace.Global, options: packed,
			milestones: []mixing.Milestone{
				{From: tokens(0), Weights: w("1", "1", "1")},
				{From: tokens(30_000), Weights: w("0.1", "5", "1"), Ramp: mixing.RampLinear, Over: tokens(50_000)},
			},
			change: func(s *planner.Spec) { s.StopTokens, s.Unit = 120_000, millrace.UnitSamples }},
		{
			name:       "stages by steps, batches ramped, longer sequences, another packing",
			shuffle:    millrace.Global,
			epochs:     2,
			bad:        true,
			milestones: plain,
			options:    packed,
			change: func(s *planner.Spec) {
				s.SequenceLength, s.GlobalBatch, s.Rampup = 32, 64, millrace.Rampup{
					Start:     16,
					Increment: 16,
					Samples:   700,
				}
				s.Stages = []planner.Stage{
					{From: steps(30), SequenceLength: 128, GlobalBatch: 16, Packing: millrace.BestFit, MicroBatch: 2},
					{
						From:           steps(45),
						SequenceLength: 64,
						GlobalBatch:    48,
						Rampup:         millrace.Rampup{Start: 16, Increment: 32, Samples: 100},
						Packing:        millrace.Pad,
						MicroBatch:     1,
					},
					{From: steps(70), SequenceLength: 64, GlobalBatch: 16, Packing: millrace.BestFit},
				}
			},
		},
		{name: "stages by tokens, varlen, samples", shuffle: millrace.Blocks, epochs: 2, milestones: plain,
			options: place.Options{Layout: millrace.Varlen, Balance: millrace.BalanceFSDP, CapPermille: 1150},
			change: func(s *planner.Spec) {
				s.Unit = millrace.UnitSamples
				s.Stages = []planner.Stage{
					{
						From:           tokens(30_000),
						SequenceLength: 256,
						GlobalBatch:    16,
						Packing:        millrace.BestFit,
						MicroBatch:     1,
					},
					{
						From:           tokens(70_000),
						SequenceLength: 32,
						GlobalBatch:    32,
						Packing:        millrace.BestFit,
						MicroBatch:     4,
					},
				}
			}},
		{
			name:       "filters of sources and of a stage, bounds that hold from the start",
			shuffle:    millrace.Blocks,
			epochs:     2,
			bad:        true,
			refused:    true,
			milestones: plain,
			options:    packed,
			change: func(s *planner.Spec) {
				s.Stages = []planner.Stage{
					{From: steps(25), SequenceLength: 64, GlobalBatch: 16, Packing: millrace.BestFit, Filters: 2},
					{From: steps(60), SequenceLength: 64, GlobalBatch: 16, Packing: millrace.BestFit},
				}
				s.Schedule.Bound(
					mixing.Bounds{Most: []uint64{mixing.Whole / 5 * 2, 0, 0}, Least: []uint64{0, mixing.Whole / 4, 0}})
			},
		},
		{
			name:    "windows under a ramp, carry, bad records",
			shuffle: millrace.Global,
			epochs:  2,
			bad:     true,
			options: packed,
			milestones: []mixing.Milestone{
				{Weights: w("1", "1", "1")},
				{From: steps(20), Weights: w("1", "3", "0.5"), Ramp: mixing.RampLinear, Over: steps(25)},
			},
			change: func(s *planner.Spec) { s.Window, s.Carry = 4, 24 },
		},
		{
			name:       "concatenated documents, windows, samples",
			shuffle:    millrace.Blocks,
			epochs:     2,
			bad:        true,
			milestones: plain,
			options:    packed,
			change: func(s *planner.Spec) {
				s.Packing, s.Window, s.Unit, s.LastStep = millrace.Concat, 3, millrace.UnitSamples, millrace.ShortLast
			},
		},
		{
			name:       "buckets of lengths, windows, carry, then a stage of shorter bins",
			shuffle:    millrace.Global,
			epochs:     2,
			bad:        true,
			milestones: plain,
			options:    packed,
			change: func(s *planner.Spec) {
				s.Packing, s.Window, s.Carry, s.PadMultiple, s.GlobalBatch = millrace.Bucketed, 3, 40, 2, 32
				s.Stages = []planner.Stage{
					{From: steps(60), SequenceLength: 32, GlobalBatch: 32, Packing: millrace.Bucketed},
				}
			},
		},
		{
			name:       "rows of tokens, windows, then a stage of shorter bins",
			shuffle:    millrace.Global,
			epochs:     2,
			bad:        true,
			milestones: plain,
			options:    packed,
			change: func(s *planner.Spec) {
				s.Packing, s.BucketRows, s.Window, s.PadMultiple = millrace.Bucketed, bucket.Tokens, 4, 2
				s.GlobalBatch = 32
				s.Stages = []planner.Stage{
					{From: steps(30), SequenceLength: 32, GlobalBatch: 32, Packing: millrace.Bucketed},
				}
			},
		},
		{
			name:       "a source that stops the run",
			shuffle:    millrace.InFileOrder,
			epochs:     2,
			bad:        true,
			milestones: plain,
			options:    place.Options{Layout: millrace.Packed, Balance: millrace.BalancePP},
			change:     func(s *planner.Spec) { s.Sources[1].OnExhausted = millrace.StopRun },
		},
	}
}

// prepare reads the streams of a setting.
func (x *setting) prepare(t *testing.T, dir string) {
	t.Helper()
	schedule, err := mixing.NewSchedule(3, x.milestones)
	if err != nil {
		t.Fatal(err)
	}
	x.spec = &planner.Spec{
		SequenceLength: 64,
		GlobalBatch:    16,
		PadMultiple:    1,
		Packing:        millrace.BestFit,
		Unit:           millrace.UnitTokens,
		Schedule:       schedule,
		LastStep:       millrace.PadLast,
	}
	x.streams = map[string]*stream{}
	for _, name := range []string{"books", "code", "web"} {
		on := millrace.Renormalize
		if x.epochs == 0 {
			on = millrace.Repeat
		}
		x.spec.Sources = append(x.spec.Sources, planner.SourceSpec{Name: name, OnExhausted: on})
		x.streams[name] = readStream(t, dir, name, x.shuffle, x.epochs, 8000, x.bad)
		if x.refused {
			x.streams[name].refuse()
		}
	}
	if x.change != nil {
		x.change(x.spec)
	}
	x.options.LastStep = x.spec.LastStep
}

// placings returns the placings on which a run continues.
func placings() (out []placing) {
	for i, ranks := range []int{1, 2, 8} {
		for j, loaders := range []int{1, 2, 8} {
			for k, runway := range []int{1, 6} {
				out = append(out, placing{ranks: ranks, micro: 1 + (i+j+k)%2, loaders: loaders, runway: runway})
			}
		}
	}
	return out
}

// TestEveryStateContinues restores the state of every step on another number of ranks, with another microbatch size,
// other loaders, and with and without prefetch. The run continues with equal content, with the bytes of an
// uninterrupted run on that many ranks, and with equal states. Every state is restored, so equal states make all later
// steps equal; every 25th state continues to the end of the run. A state from the middle of a step continues there on
// the same placement, and at the step's beginning on another.
func TestEveryStateContinues(t *testing.T) {
	dir := t.TempDir()
	for _, source := range []string{"books", "code", "web"} {
		files(t, dir, source)
	}
	for _, x := range settings(t) {
		t.Run(strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			x.prepare(t, dir)
			whole := map[[2]int]*history{}
			for _, p := range placings() {
				shape := [2]int{p.ranks, p.micro}
				if whole[shape] == nil {
					whole[shape] = x.resume(t, p, nil, 0)
				}
			}
			if n := len(whole[[2]int{1, 1}].steps); n < 90 {
				t.Errorf("a run of %d steps shows little", n)
			}
			for i := range whole[[2]int{1, 1}].steps {
				x.restore(t, whole, uint64(i+1))
			}
		})
	}
}

// restore continues from the state before a step. The step selects the placing, so all placings are used.
func (x *setting) restore(t *testing.T, whole map[[2]int]*history, step uint64) {
	t.Helper()
	all := placings()
	from, to := all[int(step*7)%len(all)], all[int(step*5)%len(all)]
	saved, want := whole[[2]int{from.ranks, from.micro}], whole[[2]int{to.ranks, to.micro}]
	length := 2
	if step%25 == 0 {
		length = 0
	}
	state := given(saved.steps[step-1].state, 0, "")
	got := x.resume(t, to, state, length)
	ahead := want.steps[step:]
	if got.refusal != "" || got.begun == nil || got.from != step {
		t.Fatalf("from the state before step %d it begins at %d: %s", step, got.from, got.refusal)
	}
	if length == 0 && len(got.steps) != len(ahead) || len(got.steps) < min(length, len(ahead)) {
		t.Fatalf("from the state before step %d there come %d steps, want %d", step, len(got.steps), len(ahead))
	}
	if d := first(got.steps, ahead, step); d != "" {
		t.Fatalf("from the state before step %d, %+v to %+v: %s", step, from, to, d)
	}
	if (length == 0 || len(ahead) == 0) && got.ended != want.ended {
		t.Fatalf("from the state before step %d it ends %s, want %s", step, got.ended, want.ended)
	}
	if len(ahead) > 0 {
		x.inside(t, saved.steps[step-1].state, ahead, to, step)
	}
}

// inside continues from the middle of a step.
func (x *setting) inside(t *testing.T, state string, ahead []planned, p placing, step uint64) {
	t.Helper()
	taken := 1 + uint32(step)%ahead[0].micro
	text := given(state, taken, ahead[0].place)
	got := x.resume(t, p, text, 1)
	if taken == ahead[0].micro {
		if !strings.Contains(got.refusal, fmt.Sprintf("after %d of its microbatches, and it has %d", taken, taken)) {
			t.Fatalf("beyond the end of step %d: %q", step, got.refusal)
		}
		return
	}
	if got.begun == nil || got.begun.Step != step || got.begun.Microbatch != taken ||
		first(got.steps, ahead, step) != "" {
		t.Fatalf("inside step %d: %s%s, begins at %+v", step, first(got.steps, ahead, step), got.refusal, got.begun)
	}
	p.ranks = map[int]int{1: 2, 2: 8, 8: 1}[p.ranks]
	bare := x.resume(t, p, given(state, 0, ""), 1)
	got = x.resume(t, p, text, 1)
	if got.begun == nil || got.begun.Step != step || got.begun.Microbatch != 0 ||
		!strings.Contains(got.begun.Notice, fmt.Sprintf("inside step %d, after %d of its", step, taken)) ||
		first(got.steps, bare.steps, step) != "" || len(got.steps) != len(bare.steps) {
		t.Fatalf("inside step %d on %d ranks: %s%s, begins at %+v", step, p.ranks,
			first(got.steps, bare.steps, step), got.refusal, got.begun)
	}
}
