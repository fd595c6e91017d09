package sim

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/sources"
)

// workloads is the number of workloads. Each seed uses one.
const workloads = 21

// manySources is the workload of many small sources.
const manySources = 19

// workload describes a run: sources, mixture and topology. They follow from its number.
type workload struct {
	number  int
	dir     string
	sources []millrace.Shuffle // by number, see name
	epochs  []uint32
	records []int // of each source in an epoch
	memory  int64 // of a loader, bytes
	stripes []int
	loaders int
	shadows int
	hosts   int // sidecars; rank r is on host r % hosts
	ranks   int // of the world
	axes    millrace.Topology
	steps   millrace.Step
	ends    bool // the run ends after these steps; otherwise it is endless
	options place.Options
	config  orchestrator.Config
	other   *workload // the same under another topology
}

// newWorkload writes a workload's files below dir.
func newWorkload(t *testing.T, dir string, number int) *workload {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(number), 11))
	w := &workload{
		number:  number,
		dir:     filepath.Join(dir, fmt.Sprint(number)),
		loaders: 1 + rng.IntN(3),
		ranks:   1 + rng.IntN(3),
		steps:   millrace.Step(5 + rng.IntN(4)),
		ends:    rng.IntN(2) == 0,
	}
	w.hosts = 1 + rng.IntN(min(w.ranks, 2))
	w.axes = axes(w.ranks, number)
	count := 2 + rng.IntN(4)
	if number == manySources {
		count, w.steps = 300, 5
	}
	for i := range count {
		orders := []millrace.Shuffle{millrace.Global, millrace.Global, millrace.Blocks, millrace.InFileOrder}
		shuffle := orders[rng.IntN(len(orders))]
		if i == 0 {
			shuffle = millrace.Global
		}
		// Some sources are exhausted.
		w.sources, w.epochs = append(w.sources, shuffle), append(w.epochs, 1+rng.Uint32N(3))
		w.stripes = append(w.stripes, 1+rng.IntN(w.loaders))
		w.write(t, rng, i)
	}
	w.epochs[0] = 12 // one source lasts
	w.memory = []int64{32 << 10, 64 << 20}[rng.IntN(2)]
	w.config = w.configure(t, rng)
	w.pack(w.config.Spec)
	w.shadows = number % 3 // drawn last, because the delivery does not depend on it
	w.config.Shadows = w.shadows
	if number%4 == 3 {
		w.stage(w.config.Spec)
	}
	w.ranks = w.axes.Ranks
	w.reshape()
	return w
}

// axes returns the ranks that share the parts of a data-parallel rank: several in the last workloads.
func axes(dp, number int) millrace.Topology {
	t := millrace.Topology{TP: 1, CP: 1, PP: 1}
	switch number {
	case 12:
		t.TP = 2
	case 13:
		t.CP = 2
	case 14:
		t.TP, t.PP = 2, 2
	}
	t.Ranks = dp * t.TP * t.CP * t.PP
	return t
}

// pack sets the packing of steps, which differs in the last workloads.
func (w *workload) pack(spec *planner.Spec) {
	switch w.number {
	case 15:
		spec.Carry, spec.Window = 8, 3
	case 16:
		spec.Window = 4
	case 17:
		spec.Packing, spec.Window = millrace.Concat, 2
	case 18:
		spec.Packing, spec.Window, spec.Carry = millrace.Bucketed, 2, 16
	case 20:
		spec.Packing, spec.BucketRows, spec.Window = millrace.Bucketed, bucket.Tokens, 4
	}
	// All drawn records are delivered, so no bad record affects later steps.
	if within := w.steps % millrace.Step(max(spec.Window, 1)); within > 0 {
		w.steps += millrace.Step(spec.Window) - within
	}
	if w.ends {
		spec.StopSteps = uint64(w.steps)
	}
}

// name returns a source's name. Names sort as numbers do: s0 … s9, t10 … t99, u100 ….
func name(source int) string {
	return fmt.Sprintf("%c%d", 's'+rune(len(fmt.Sprint(source))-1), source)
}

// write writes the two files of a source. Some records are bad.
func (w *workload) write(t *testing.T, rng *rand.Rand, source int) {
	t.Helper()
	// A step takes many short documents: several groups of a stripe, and several epochs.
	longest, bads := []int{6, 24, 8 + rng.IntN(150)}[rng.IntN(3)], rng.IntN(2)*rng.IntN(20)
	if source == 0 {
		longest = 150
	}
	w.records = append(w.records, 0)
	for file := range 2 {
		var text strings.Builder
		if w.sources[source] == millrace.Blocks {
			fmt.Fprintln(&text, streams)
		}
		records := 20 + rng.IntN(60)
		if w.number == manySources {
			records = 1 + rng.IntN(3)
		}
		for range records {
			w.records[source]++
			if rng.IntN(100) < bads {
				fmt.Fprintln(&text, bad)
			} else {
				fmt.Fprintln(&text, 1+rng.IntN(longest))
			}
		}
		path := filepath.Join(w.dir, name(source), fmt.Sprintf("%d.jsonl", file))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// spec returns a source for the loaders.
func (w *workload) spec(source string) (sources.Spec, error) {
	for i, shuffle := range w.sources {
		if name(i) == source {
			return sources.Spec{
				Name:     source,
				Format:   numbers{},
				Base:     filepath.Join(w.dir, source),
				Patterns: []string{"."},
				Shuffle:  shuffle,
				Seed:     7,
				Epochs:   w.epochs[i],
			}, nil
		}
	}
	return sources.Spec{}, millrace.Errorf(millrace.ErrInvalid, "source %s", source)
}

func (w *workload) configure(t *testing.T, rng *rand.Rand) orchestrator.Config {
	t.Helper()
	length := uint32(32 << rng.IntN(3))
	batch := w.ranks * (1 + rng.IntN(3))
	if w.number == manySources {
		batch = 12 * w.ranks // a step draws from most sources
	}
	spec := &planner.Spec{
		SequenceLength: length,
		GlobalBatch:    batch,
		PadMultiple:    1,
		Packing:        millrace.BestFit,
		Unit:           millrace.UnitTokens,
		Schedule:       w.schedule(t, rng),
		LastStep:       millrace.PadLast,
	}
	micro := uint32(1)
	if perRank := batch / w.ranks; perRank > 1 && rng.IntN(2) == 0 {
		micro = uint32(perRank)
	}
	options := place.Options{
		MicroBatch: micro,
		Layout:     millrace.Packed,
		Balance:    millrace.BalanceFSDP,
		LastStep:   millrace.PadLast,
	}
	if w.number%5 == 2 { // with long documents in slices, if ranks can share them
		options.Layout, options.CapPermille, options.Split = millrace.Varlen, 1050, place.Split{On: true}
	}
	w.options = options
	c := orchestrator.Config{
		Loaders:  w.loaders,
		Stream:   millrace.Train,
		Spec:     spec,
		Identity: []byte(`{}`),
		Runway:   2 + rng.IntN(4),
		By:       "sim",
		Up:       "sim",
		Log:      slog.New(slog.DiscardHandler),
		Compare:  sources.Compare,
		Rules:    facts.Rules{Changed: func([]byte) ([]string, error) { return nil, nil }},
	}
	for i, shuffle := range w.sources {
		spec.Sources = append(spec.Sources, planner.SourceSpec{Name: name(i), OnExhausted: millrace.Renormalize})
		if w.number%3 == 2 && shuffle == millrace.Global { // long documents are spread
			spec.Sources[i].PieceTokens = length
		}
		if w.number >= 12 && i == 0 {
			w.stripes[i] = w.loaders // every loader reads a stripe
		}
		c.Sources = append(c.Sources, orchestrator.Source{Name: name(i), Stripes: w.stripes[i],
			Allowed: func(bool, uint64) uint64 { return 1000 }})
	}
	return c
}

// stage adds two stages: longer sequences, and a ramp of unpacked documents.
func (w *workload) stage(spec *planner.Spec) {
	ranks := uint32(w.ranks)
	from := func(step uint64) mixing.Point { return mixing.Point{Measure: mixing.Steps, Count: step} }
	spec.Stages = []planner.Stage{
		{
			From:           from(2),
			SequenceLength: 2 * spec.SequenceLength,
			GlobalBatch:    2 * w.ranks,
			Packing:        millrace.BestFit,
			MicroBatch:     2,
		},
		{
			From:           from(4),
			SequenceLength: spec.SequenceLength / 2,
			GlobalBatch:    3 * w.ranks,
			Rampup:         millrace.Rampup{Start: ranks, Increment: ranks, Samples: uint64(4 * ranks)},
			Packing:        millrace.Pad,
			MicroBatch:     1,
		},
	}
}

// schedule returns a schedule with one to three milestones.
func (w *workload) schedule(t *testing.T, rng *rand.Rand) *mixing.Schedule {
	t.Helper()
	var milestones []mixing.Milestone
	for milestone := range 1 + rng.IntN(3) {
		k := mixing.Milestone{From: mixing.Point{Count: uint64(3 * milestone)}}
		for range w.sources {
			weight, err := mixing.ParseWeight(fmt.Sprintf("0.%d", 1+rng.IntN(9)))
			if err != nil {
				t.Fatal(err)
			}
			k.Weights = append(k.Weights, weight)
		}
		milestones = append(milestones, k)
	}
	s, err := mixing.NewSchedule(len(w.sources), milestones)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func loaderName(i int) string  { return fmt.Sprintf("loader-%d", i) }
func sidecarName(i int) string { return fmt.Sprintf("sidecar-%d", i) }

// slots returns the names of all processes of the run. hosts is 0 for a run on one host.
func (w *workload) slots(hosts, sidecars int) []string {
	out := []string{orchestratorName}
	if hosts > 0 {
		out = nil
		for i := range min(hosts, candidates) {
			out = append(out, fmt.Sprintf("%s-%d", orchestratorName, i))
		}
	}
	for i := range w.loaders {
		out = append(out, loaderName(i))
	}
	for i := range w.shadows {
		out = append(out, fmt.Sprintf("%s-%d", shadowName, i))
	}
	for i := range sidecars {
		out = append(out, sidecarName(i))
	}
	return out
}

const (
	orchestratorName = "orchestrator"
	shadowName       = "shadow"
)
