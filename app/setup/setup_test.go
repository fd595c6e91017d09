package setup

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"millrace"
	"millrace/app/config"
	"millrace/app/config/value"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/sources"
)

// parse reads a mixture of three sources with more lines at its end.
func parse(t *testing.T, weights string, more ...string) *config.Config {
	t.Helper()
	text := "version: 1\nsequence_length: 64\nglobal_batch_size: 8\nmicro_batch_size: 2\ntokenizer: {name: " +
		"gpt2}\nsources:\n"
	for _, name := range []string{"books", "code", "web"} {
		text += fmt.Sprintf("  %s: {path: %s/*.jsonl, format: jsonl, text: body}\n", name, name)
	}
	text += "mixture:\n  " + weights + "\n" + strings.Join(more, "\n") + "\n"
	c, err := config.Parse("mixture.yaml", []byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const plain = "weights: {books: 0.2, code: 0.3, web: 0.5}"

// TestStripesAreEnoughForEveryLoader: there are as many stripes as loaders, or one of each source if that is more.
// Sources differ by at most one stripe.
func TestStripesAreEnoughForEveryLoader(t *testing.T) {
	for sources := 1; sources <= 9; sources++ {
		for loaders := 1; loaders <= 20; loaders++ {
			c := &config.Config{Sources: make(config.Sources, sources), Loaders: value.Loaders{Count: uint32(loaders)}}
			stripes, sum := stripesOf(t, c, Measured{}), 0
			for _, n := range stripes {
				sum += n
			}
			if len(stripes) != sources || slices.Min(stripes) < 1 || slices.Max(stripes) > slices.Min(stripes)+1 ||
				sum != max(sources, loaders) {
				t.Errorf("%d sources, %d loaders: %v", sources, loaders, stripes)
			}
			c.Loaders = value.Loaders{Count: 1}
			if got := stripesOf(t, c, Measured{Loaders: 1, Readers: loaders}); !slices.Equal(got, stripes) {
				t.Errorf("%d sources, agreed for %d loaders: %v", sources, loaders, got)
			}
		}
	}
	if n := alone(&config.Config{Sources: make(config.Sources, 2)}).Fleet.Loaders; n < 1 || n > 2 {
		t.Errorf("auto is %d loaders for two sources", n)
	}
}

// alone returns the part of a stream on this host.
func alone(c *config.Config) Part { return Alone(c, ThisHost(1), Measured{}) }

// profiled returns a measurement of the sources of the only stream.
func profiled(m Measured, profiles []Profile) Measured {
	m.Profiles = map[string][]Profile{string(millrace.Train): profiles}
	return m
}

// stripesOf returns the number of stripes of each source.
func stripesOf(t *testing.T, c *config.Config, m Measured) (out []int) {
	t.Helper()
	s := Stream{Config: c, Part: Alone(c, ThisHost(1), m)}
	shares, err := s.Shares()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shares {
		out = append(out, s.Stripes)
	}
	return out
}

// TestProfilesDivideHeavySources: the stripes follow the cost of a token times the part of the mixture, at the time at
// which that is largest.
func TestProfilesDivideHeavySources(t *testing.T) {
	const later = "schedule: [{from_step: 0, weights: {books: 0, code: 1, web: 1}}, " +
		"{from_step: 50, ramp: linear, over_steps: 9, weights: {books: 1, code: 0, web: 0}}]"
	for _, want := range []struct {
		mixture           string
		books, code, web  uint64 // milliseconds for a million tokens
		resident, loaders int    // resident bytes of books, in MiB
		stripes           []int
	}{
		{plain, 0, 0, 0, 0, 8, []int{2, 3, 3}},       // no profile
		{plain, 100, 100, 100, 0, 8, []int{2, 3, 4}}, // 1.6, 2.4 and 4 loaders
		{plain, 900, 10, 10, 0, 8, []int{7, 1, 1}},   // 7.7 loaders
		{plain, 900, 10, 10, 0, 1, []int{1, 1, 1}},
		{plain, 900, 0, 10, 0, 8, []int{4, 4, 1}},       // 4.5 and 3.4; the mean for code
		{plain, 1000, 100, 100, 900, 8, []int{5, 1, 2}}, // no more than loaders: they have no room
		{later, 10, 100, 10, 0, 4, []int{4, 4, 1}},
	} {
		c := parse(t, want.mixture, "limits: {loader_memory: 2GiB}")
		c.Loaders = value.Loaders{Count: uint32(want.loaders)}
		profiles := make([]Profile, 3)
		for i, ms := range []uint64{want.books, want.code, want.web} {
			profiles[i].Nanoseconds = ms * 1e6
		}
		profiles[0].Resident = uint64(want.resident) << 20
		if got := stripesOf(t, c, profiled(Measured{}, profiles)); !slices.Equal(got, want.stripes) {
			t.Errorf("%+v: %v", want, got)
		}
	}
}

// TestAnyProfilesGiveEachLoaderAPart for any weights and costs: no stripe has more than a loader's part and an eighth.
func TestAnyProfilesGiveEachLoaderAPart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := func(name string, most int) int { return rapid.IntRange(0, most).Draw(rt, name) }
		c := parse(t, fmt.Sprintf("weights: {books: %d, code: %d, web: 1}", n("a", 9), n("b", 9)))
		loaders := 1 + n("loaders", 30)
		profiles := make([]Profile, len(c.Sources))
		for i := range profiles {
			profiles[i].Nanoseconds = uint64(n("cost", 1e9))
		}
		profiles[0].Nanoseconds++
		s := Stream{Config: c, Part: Alone(c, ThisHost(1), profiled(Measured{Loaders: 1, Readers: loaders}, profiles))}
		shares, err := s.Shares()
		if err != nil {
			rt.Fatal(err)
		}
		count := 0
		for _, s := range shares {
			count += s.Stripes
			if s.Stripes < 1 || s.Stripes > loaders || s.Stripes < loaders && 8*s.Work*int64(loaders) > 9*1_000_000 {
				rt.Fatalf("%d loaders: %v", loaders, shares)
			}
		}
		if count < loaders || count > loaders+2*len(shares) {
			rt.Fatalf("%d stripes for %d loaders: %v", count, loaders, shares)
		}
	})
}

// TestProcessesOfHostsHaveTheirOwnNames: no two hosts have a process of one name.
func TestProcessesOfHostsHaveTheirOwnNames(t *testing.T) {
	fleet := Fleet{Loaders: 2, Shadows: 1}
	for _, want := range []struct {
		place Place
		names string
	}{
		{Place{}, "[loader-0 loader-1 shadow-0 sidecar-0]"},
		{Place{IsSpread: true}, "[loader-0-0 loader-0-1 shadow-0-0 sidecar-0]"},
		{Place{IsSpread: true, First: 8}, "[loader-8-0 loader-8-1 shadow-8-0 sidecar-8]"},
	} {
		got := append(append(want.place.Loaders(fleet), want.place.Shadows(fleet)...), want.place.Sidecar())
		if fmt.Sprint(got) != want.names {
			t.Errorf("%v, want %s", got, want.names)
		}
	}
}

// TestTheLeastNumberOfARangeIsThatOfTheRun: the hosts share it, and that of rank 0 has a loader in any case.
func TestTheLeastNumberOfARangeIsThatOfTheRun(t *testing.T) {
	for least := 1; least <= 9; least++ {
		for hosts := 2; hosts <= 7; hosts++ {
			c := &config.Config{Sources: make(config.Sources, 3)}
			c.Loaders = value.Loaders{Count: uint32(least), Most: 20}
			fleet := alone(c).Fleet
			names := map[string]bool{}
			for i, p := range (Place{Ranks: 8, World: 8 * hosts}).Others() {
				here := p.Loaders(fleet)
				if i == 0 && len(here) == 0 || len(here) > (least+hosts-1)/hosts {
					t.Errorf("%d loaders on %d hosts: host %d has %v", least, hosts, i, here)
				}
				for _, name := range here {
					names[name] = true
				}
			}
			if len(names) != least {
				t.Errorf("%d loaders on %d hosts: %v", least, hosts, names)
			}
		}
	}
}

// TestLoaderMemoryIsForAll checks that all loaders and shadows together stay within the limit.
func TestLoaderMemoryIsForAll(t *testing.T) {
	for loaders := 1; loaders <= 5; loaders++ {
		for shadows := 0; shadows <= 3; shadows++ {
			c := parse(
				t, plain, "limits: {loader_memory: 100MiB, sample_bytes: 1MiB}", fmt.Sprintf("loaders: %d", loaders),
				fmt.Sprintf("reliability: {shadows: %d}", shadows),
			)
			all := int64(loaders+shadows) * alone(c).Reader.Heap
			if all > 100<<20 || all < 100<<20-10 {
				t.Errorf("%d loaders and %d shadows hold %d bytes", loaders, shadows, all)
			}
		}
	}
}

// TestUsualLimits: a source that is opened without limits has those of a mixture file without `limits`.
func TestUsualLimits(t *testing.T) {
	if got := int64(parse(t, plain).Limits.SampleBytes); got != sources.UsualSampleBytes {
		t.Errorf("sample_bytes is %d in the mixture file and %d in sources", got, sources.UsualSampleBytes)
	}
}

// TestAllowedIsTheFractionRoundedUp, exactly, for any count.
func TestAllowedIsTheFractionRoundedUp(t *testing.T) {
	for _, budget := range []string{"0", "0.001", "0.3333", "0.000000001", "1"} {
		allowed := Allowed(parse(t, plain, "quarantine: {budget: "+budget+"}"))
		share, _ := new(big.Rat).SetString(budget)
		for _, records := range []uint64{0, 1, 999, 1000, 1001, 9_999, 10_000, 123_456_789, 1 << 40, 1<<64 - 1} {
			for _, counted := range []bool{true, false} {
				n := records
				if !counted {
					n = max(n, uncounted)
				}
				product := new(big.Rat).Mul(share, new(big.Rat).SetInt(new(big.Int).SetUint64(n)))
				want := new(big.Int).Add(product.Num(), new(big.Int).Sub(product.Denom(), big.NewInt(1)))
				want.Quo(want, product.Denom())
				if got := allowed(counted, records); got != want.Uint64() {
					t.Errorf("budget %s, %d records, counted %v: %d, want %s", budget, records, counted, got, want)
				}
			}
		}
	}
}

func TestCostsComeFromTheModel(t *testing.T) {
	model := "model: {layers: 32, hidden: 4096, heads: 32, ffn: 14336, vocab: 128256"
	llama := cost.Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128, FFN: 14336, Vocab: 128256}
	many := llama
	many.KVHeads = 32
	for _, c := range []struct {
		line string
		want cost.Cost
	}{
		{"", cost.Default()},
		{"cost: {linear: 5, quadratic: 2}", cost.Cost{Linear: 5, Quadratic: 2}},
		{model + ", kv_heads: 8, head_dim: 128}", llama.Cost()},
		{model + ", kv_heads: 8}", llama.Cost()}, // head_dim is hidden / heads
		{model + "}", many.Cost()},
		{`cost: {backbone: "2*tokens^2 + 3*tokens + tokens", encoder: patches + 7*patches^2}`, cost.Cost{Linear: 4,
			Quadratic: 2, Encoder: cost.Encoder{Linear: 1, Quadratic: 7}}},
		{model + ", window: 64, window_layers: 8, experts: 8, active_experts: 2, shared_experts: 1, mla: {q: 24, v: " +
			"16, q_rank: 5, kv_rank: 6}, encoder: {layers: 2, hidden: 64, heads: 4, ffn: 99, patches_per_image: 10}}",
			cost.Model{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, FFN: 14336, Vocab: 128256, Window: 64,
				WindowLayers: 8, Experts: 8, Active: 2, Shared: 1,
				QueryDim: 24, ValueDim: 16, QueryRank: 5, KVRank: 6, Encoder: &cost.EncoderModel{Layers: 2, Hidden: 64,
					Heads: 4, HeadDim: 16, FFN: 99, Image: 10}}.Cost()},
	} {
		cfg := parse(t, plain, c.line)
		if got := Costs(cfg); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.line, got, c.want)
		}
		if got := Placing(cfg, millrace.Topology{Ranks: 4, TP: 1, CP: 1, PP: 1}); got.Ranks != 4 ||
			!strings.HasPrefix(got.Cost, fmt.Sprintf("%d %d", c.want.Linear, c.want.Quadratic)) ||
			placeOptions(t, cfg, millrace.Topology{Ranks: 4, TP: 1, CP: 1, PP: 1}).Cost != c.want {
			t.Errorf("%q: placing %v", c.line, got)
		}
	}
	if got := placeOptions(t, parse(t, plain, "layout: varlen", "cap_slack: 1.25"), millrace.Topology{Ranks: 4, TP: 1,
		CP: 1, PP: 1}); got.CapPermille != 1250 ||
		got.MicroBatch != 2 ||
		got.Layout != millrace.Varlen {
		t.Errorf("options %+v", got)
	}
}

// TestPlacingTellsApart checks that every setting that moves segments changes the placing.
func TestPlacingTellsApart(t *testing.T) {
	topo := millrace.Topology{Ranks: 8, TP: 2, CP: 1, PP: 1}
	seen := map[string]string{}
	for _, lines := range []string{"", "distribute: {group: 2}", "distribute: {group: 2, over: world}",
		"split_documents: {above: mean}", "split_documents: {above: 99}",
		`cost: {backbone: 61000*tokens + tokens^2}`, `cost: {backbone: 61000*tokens + tokens^2, encoder: patches}`,
		"balance: pp",
		"model: {layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 10}",
		"model: {layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 10, window: 32}"} {
		cfg := parse(t, plain, "layout: varlen", "parallelism: {tp: 2}", lines)
		placing := Placing(cfg, topo).String()
		if other, ok := seen[placing]; ok {
			t.Errorf("%q and %q are one placing: %s", lines, other, placing)
		}
		seen[placing] = lines
	}
	o := placeOptions(
		t,
		parse(
			t, plain, "layout: varlen", "parallelism: {tp: 2}", "distribute: {group: 4, over: world}",
			"split_documents: {above: 99}",
		),
		topo,
	)
	if o.Group != 2 || o.Split != (place.Split{On: true, AboveTokens: 99}) {
		t.Errorf("options %+v", o)
	}
}

// TestSchedulesKeepTheirMeasure checks the weights in force at a step, or after a number of tokens.
func TestSchedulesKeepTheirMeasure(t *testing.T) {
	const milestones = `schedule:
    - {%[1]s: 0, weights: {books: 1, code: 0, web: 3}}
    - {%[1]s: 100, weights: {books: 3, code: 0, web: 1}, ramp: linear, %[2]s: 40}
    - {%[1]s: 200, weights: {books: 0, code: 1, web: 0}}`
	cosine := strings.ReplaceAll(milestones, "linear", "cosine")
	first, middle, second, third := []uint64{1, 0, 3}, []uint64{2, 0, 2}, []uint64{3, 0, 1}, []uint64{0, 4, 0}
	for _, c := range []struct {
		mixture string
		tokens  bool
		want    map[uint64][]uint64
	}{
		{fmt.Sprintf(milestones, "from_step", "over_steps"), false, map[uint64][]uint64{0: first, 99: first, 100: first,
			120: middle, 140: second, 199: second, 200: third, 1 << 40: third}},
		{fmt.Sprintf(milestones, "from_tokens", "over_tokens"), true, map[uint64][]uint64{0: first, 99: first,
			100: first, 120: middle, 140: second, 199: second, 200: third, 1 << 40: third}},
		{fmt.Sprintf(cosine, "from_tokens", "over_tokens"), true, map[uint64][]uint64{99: first, 100: first,
			120: middle, 140: second}},
		{"weights: {books: 1, code: 0, web: 3}", false, map[uint64][]uint64{0: first, 1 << 40: first}},
	} {
		spec, err := PlanSpec(parse(t, c.mixture), config.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		for at, want := range c.want {
			step, tokens := at, uint64(7)
			if c.tokens {
				step, tokens = 7, at
			}
			shares := spec.Schedule.At(step, tokens).Shares([]bool{true, true, true})
			for i, s := range shares {
				if quarter := int64(mixing.One / 4); int64(s) < int64(want[i])*quarter-1 ||
					int64(s) > int64(want[i])*quarter+1 {
					t.Errorf(
						"at %d (tokens: %v): shares %v of %d, want quarters %v", at, c.tokens, shares, mixing.One, want,
					)
				}
			}
		}
	}
}

func TestAPlanSpecIsTheFile(t *testing.T) {
	spec, err := PlanSpec(
		parse(t, plain, "stop: {tokens: 5000}", "packing: pad", "pad_multiple: 8", "last_step: drop", "window: 4"),
		config.Facts{},
	)
	if err != nil {
		t.Fatal(err)
	}
	if spec.SequenceLength != 64 || spec.GlobalBatch != 8 || spec.PadMultiple != 8 || spec.Packing != millrace.Pad ||
		spec.LastStep != millrace.DropLast ||
		spec.Window != 4 || spec.Carry != planner.AutoCarry || spec.StopTokens != 5000 ||
		spec.StopSteps != 0 ||
		len(spec.Sources) != 3 ||
		spec.Sources[2].Name != "web" {
		t.Errorf("%+v", spec)
	}
	spec, err = PlanSpec(parse(t, plain, "carry: 9"), config.Facts{})
	if err != nil || spec.Carry != 9 || spec.Window != 0 {
		t.Errorf("%+v, %v", spec, err)
	}
}

// TestStagesAreTheFiles checks that a stage inherits from the stage before, and that a placing names every microbatch
// size.
func TestStagesAreTheFiles(t *testing.T) {
	cfg := parse(
		t,
		plain,
		"rampup_batch_size: {start: 4, increment: 2, samples: 100}",
		"stages: [{from_tokens: 9000, sequence_length: 128, micro_batch_size: 1}, {from_tokens: 20000, "+
			"global_batch_size: 4, packing: pad}]",
	)
	spec, err := PlanSpec(cfg, config.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(n uint64) mixing.Point { return mixing.Point{Measure: mixing.Tokens, Count: n} }
	want := []planner.Stage{
		{From: at(9000), SequenceLength: 128, GlobalBatch: 8, Packing: millrace.BestFit, MicroBatch: 1},
		{From: at(20000), SequenceLength: 128, GlobalBatch: 4, Packing: millrace.Pad, MicroBatch: 1},
	}
	if spec.Rampup != (millrace.Rampup{Start: 4, Increment: 2, Samples: 100}) || !slices.Equal(spec.Stages, want) {
		t.Errorf("got %+v and %+v, want %+v", spec.Rampup, spec.Stages, want)
	}
	if got := Placing(cfg, millrace.Topology{Ranks: 2, TP: 1, CP: 1, PP: 1}); got.MicroBatch != 2 ||
		!slices.Equal(got.Stages, []uint32{1, 1}) {
		t.Errorf("placing %v", got)
	}
}

// TestFiltersHaveTheirBits checks that stages with equal or inherited filters share a bit, and that a source answers
// for each bit.
func TestFiltersHaveTheirBits(t *testing.T) {
	c := parse(
		t, plain, "stages:", "  - {from_step: 3, filters: {web: 'a > 1', code: 'b > 1'}}",
		"  - {from_step: 4, global_batch_size: 4}", "  - {from_step: 5, filters: {}}",
		"  - {from_step: 6, filters: {web: 'c > 1'}}", "  - {from_step: 7, filters: {code: 'b > 1', web: 'a > 1'}}",
	)
	web, _ := c.Source("web")
	web.Filter = "d"
	spec, err := PlanSpec(c, config.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	var masks []uint64
	for _, s := range spec.Stages {
		masks = append(masks, s.Filters)
	}
	if want := []uint64{2, 2, 0, 4, 2}; !slices.Equal(masks, want) {
		t.Errorf("masks %b, want %b", masks, want)
	}
	for name, want := range map[string][]string{"web": {"d", "a > 1", "c > 1"}, "code": {"", "b > 1", ""},
		"books": nil} {
		src, _ := c.Source(name)
		s, err := SourceSpec(c, src, nil, nil)
		if err != nil || !slices.Equal(s.Filters.Texts(), want) {
			t.Errorf("%s: %q, %v, want %q", name, s.Filters.Texts(), err, want)
		}
	}
	if got := spec.Sources[2].Filters; got != "d; a > 1 (of a stage); c > 1 (of a stage)" {
		t.Error(got)
	}
}

func TestSourcesAreWhatTheFileSays(t *testing.T) {
	c := parse(t, plain)
	e, err := Tokenizer(c)
	if err != nil || e == nil {
		t.Fatal(err)
	}
	if Vocabulary(e) != fmt.Sprintf("%x", e.Fingerprint()) {
		t.Error("the identity does not get the fingerprint of the vocabulary")
	}
	src, _ := c.Source("code")
	spec, err := SourceSpec(c, src, e, nil)
	if err != nil || spec.Name != "code" || spec.Field.Text != "body" || spec.Format.Name() != "jsonl" ||
		spec.Tokenizer != e ||
		spec.Shuffle != c.Shuffle ||
		spec.Limits.SampleBytes != 64<<20 {
		t.Errorf("%v: %+v", err, spec)
	}
	c.Tokenizer.Name = "gpt9"
	if _, err := Tokenizer(c); !errors.Is(err, millrace.ErrInvalid) ||
		!strings.Contains(err.Error(), "mixture.yaml:5") {
		t.Errorf("an unknown vocabulary: %v", err)
	}
	if e, err := Tokenizer(&config.Config{}); e != nil || err != nil {
		t.Errorf("without text: %v %v", e, err)
	}
}

func placeOptions(t *testing.T, c *config.Config, topology millrace.Topology) place.Options {
	t.Helper()
	s, err := Strategy(c, config.Facts{}, topology)
	if err != nil {
		t.Fatal(err)
	}
	return s.Options()
}

// TestDivision: the division of loader_memory fits into each loader's part with 1 to 4,096 sources and 1 to 64
// processors. `loaders: auto` looks at both.
func TestDivision(t *testing.T) {
	for _, cores := range []int{1, 2, 7, 64} {
		for _, sources := range []int{1, 3, 306, 4096} {
			for _, memory := range []value.Bytes{64 << 20, 512 << 20, 16 << 30} {
				c := &config.Config{Sources: make(config.Sources, sources)}
				c.Limits.LoaderMemory, c.Reliability.Shadows = memory, 1
				part := Alone(c, Host{Cores: cores}, Measured{})
				loaders, d := part.Fleet.Loaders, part.Reader
				if loaders < 1 || loaders > min(cores, sources) {
					t.Errorf("%d loaders for %d sources on %d processors", loaders, sources, cores)
				}
				if part := int64(memory) / int64(loaders+1); d.Heap > part || loaders > 1 && part < leastAuto {
					t.Errorf("%d loaders with %s: each has %d bytes", loaders, memory, d.Heap)
				}
				if d.Encoders < 1 || (d.Encoders-1)*loaders >= cores {
					t.Errorf("%d encoders in each of %d loaders on %d processors", d.Encoders, loaders, cores)
				}
				if d.Procs > cores || d.Decoders < 2 {
					t.Errorf("%d processors, %d decoders on %d processors", d.Procs, d.Decoders, cores)
				}
				fixed := int64(d.Encoders)*d.EncoderBytes + int64(d.Decoders)*decoderBytes + d.Buffers
				if d.Payload < d.Heap/4 || d.Payload+fixed > d.Heap {
					t.Errorf("%d bytes of payload and %d fixed do not fit %d", d.Payload, fixed, d.Heap)
				}
			}
		}
	}
}
