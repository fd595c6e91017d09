package dryrun

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/app/config"
	"millrace/app/setup"
	"millrace/sources/read/feed"
)

// corpus writes JSON lines of similar lengths, so that an estimate from a sample is good. Bad are the numbers of
// records that cannot be decoded.
func corpus(t *testing.T, dir, name string, records int, bad ...int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(records), 7))
	var b strings.Builder
	for i := range records {
		fmt.Fprintf(&b, `{"text": "%d%s"}`+"\n", i, strings.Repeat(" word", 20+rng.IntN(60)))
	}
	lines := strings.SplitAfter(b.String(), "\n")
	for _, i := range bad {
		lines[i] = "{\"text\"\n"
	}
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(strings.Join(lines, "")),
		0o600)); err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, dir, mixture string) *config.Config {
	t.Helper()
	c, err := config.Parse(
		"m.yaml", []byte("version: 1\ntokenizer: {name: gpt2}\nsequence_length: 256\nglobal_batch_size: 8\n"+mixture),
		dir,
	)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const twoSources = `
sources:
  big: {path: "big/*.jsonl"%s}
  small: {path: "small/*.jsonl"%s}
`

// The estimates of check for a run that it does not plan to its end differ from the full plan by a few percent.
func TestForecastAgreesWithThePlans(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "big/a.jsonl", 1200)
	corpus(t, dir, "small/a.jsonl", 300)
	plain := "mixture: {weights: {big: 1, small: 1}}" + fmt.Sprintf(twoSources, "", "")
	for name, mixture := range map[string]string{
		"epochs": "stop: {epochs: 2}\n" + plain,
		"steps":  "stop: {steps: 20}\n" + plain,
		"stale":  "stop: {steps: 120}\n" + plain,
		"tokens": "stop: {tokens: 30000}\n" + plain,
		"stop": "mixture: {weights: {big: 1, small: 1}}" + fmt.Sprintf(twoSources, "",
			", max_epochs: 1, on_exhausted: stop"),
		"samples": "stop: {epochs: 1}\nmixture: {unit: samples, weights: {big: 2, small: 1}}" +
			fmt.Sprintf(twoSources, "", ""),
		"stages": "stop: {epochs: 2}\nrampup_batch_size: {start: 2, increment: 2, samples: 60}\nstages: " +
			"[{from_step: 20, sequence_length: 1024}, {from_step: 24, global_batch_size: 4}]\n" + plain,
		"stages by tokens": "stop: {epochs: 2}\nstages: [{from_tokens: 20000, sequence_length: 512}, {from_tokens: " +
			"50000, global_batch_size: 4}, {from_tokens: 10000000}]\n" + plain,
		"schedule": "stop: {epochs: 1}\nmixture: {schedule: [{from_step: 0, weights: {big: 1, small: 0}}, " +
			"{from_step: 10, weights: {big: 1, small: 3}, ramp: linear, over_steps: 6}]}" + fmt.Sprintf(twoSources, "",
			""),
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, dir, mixture)
			r, err := Check(t.Context(), c, CheckOptions{Ranks: 2, Steps: 3, Budget: -1})
			if err != nil || !r.OK {
				t.Fatal(err, r)
			}
			if !r.Run.Exact || r.Run.Steps == nil {
				t.Fatalf("a small run was not planned to its end: %+v", r.Run)
			}
			facts, err := Measure(t.Context(), c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			spec, err := setup.PlanSpec(c, facts)
			if err != nil {
				t.Fatal(err)
			}
			var supply []Supply
			for _, s := range r.Sources {
				if !s.TokensExact && r.Run.Reason == "sources" {
					t.Errorf("source %s was read to its end and its tokens are not exact", s.Name)
				}
				supply = append(
					supply, Supply{Tokens: float64(s.Tokens), Records: float64(s.Records), Passes: s.Epochs},
				)
			}
			tokens, places := float64(*r.Run.Tokens), 0.0
			for step := range *r.Run.Steps {
				batch, length := float64(c.GlobalBatchSize), float64(c.SequenceLength)
				for _, s := range r.Run.Stages {
					if s.Begins != nil && *s.Begins <= step {
						batch, length = float64(s.GlobalBatch), float64(s.SequenceLength)
						for _, size := range s.Sizes {
							if size.Step <= step {
								batch = float64(size.Sequences)
							}
						}
					}
				}
				places += batch * length
			}
			got := Forecast(c, spec, supply, tokens/places)
			for i, s := range r.Run.Stages {
				if begins := got.Begins[i]; (begins == nil) != (s.Begins == nil) ||
					begins != nil && math.Abs(float64(*begins)-float64(*s.Begins)) > 3 {
					t.Errorf("forecast of stage %d at %v, planned at %v", i, begins, s.Begins)
				}
			}
			if strings.HasPrefix(name, "stages") != (len(r.Run.Stages) > 0) {
				t.Errorf("stages %+v", r.Run.Stages)
			}
			if got.Reason != r.Run.Reason || math.Abs(float64(got.Steps)-float64(*r.Run.Steps)) > 2 {
				t.Errorf("forecast %d steps by %s, planned %d by %s", got.Steps, got.Reason, *r.Run.Steps, r.Run.Reason)
			}
			for i, s := range r.Sources {
				if d := got.Sources[i].Share - s.Share; math.Abs(d) > 0.02 {
					t.Errorf("source %s: forecast a share of %.3f, planned %.3f", s.Name, got.Sources[i].Share, s.Share)
				}
				if stale := got.Sources[i].Stale; (stale == nil) != (s.StaleStep == nil) ||
					stale != nil && math.Abs(float64(*stale)-float64(*s.StaleStep)) > 3 {
					t.Errorf("source %s: forecast stale at %v, planned %v", s.Name, stale, s.StaleStep)
				}
				if name == "stale" && (s.Name == "small") != (s.StaleStep != nil) {
					t.Errorf("source %s is read a fifth time in %v", s.Name, s.StaleStep)
				}
				dry := got.Sources[i].Dry // draws are ahead of deliveries by the segments that wait
				if (dry == nil) != (s.DryStep == nil) || dry != nil && math.Abs(float64(*dry)-float64(*s.DryStep)) > 5 {
					t.Errorf("source %s: forecast dry at %v, planned %v", s.Name, dry, s.DryStep)
				}
			}
		})
	}
}

func TestAnEndlessRunIsForecastSo(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "big/a.jsonl", 100)
	corpus(t, dir, "small/a.jsonl", 100)
	r, err := Check(
		t.Context(),
		parse(
			t,
			dir,
			"mixture: {weights: {big: 3, small: 1}}"+fmt.Sprintf(
				twoSources, ", on_exhausted: renormalize, max_epochs: 2", "",
			),
		),
		CheckOptions{Ranks: 1, Steps: 2, Budget: -1},
	)
	if err != nil || !r.OK {
		t.Fatal(err, r)
	}
	if !r.Run.Endless || r.Run.Steps != nil || r.Sources[0].DryStep == nil || r.Sources[1].DryStep != nil {
		t.Fatalf("%+v\n%+v", r.Run, r.Sources)
	}
}

// Fetching, skipping and the number of ranks do not change the content of steps, and every batch can be built.
func TestWalksAgree(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "big/a.jsonl", 200, 17)
	corpus(t, dir, "small/a.jsonl", 50)
	c := parse(
		t,
		dir,
		"quarantine: {budget: 0.1}\nstop: {epochs: 1}\nmixture: {weights: {big: 1, small: 1}}"+fmt.Sprintf(
			twoSources, "", "",
		),
	)
	opened, err := Open(t.Context(), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	var want []millrace.Digest
	for i, ranks := range []int{1, 4} {
		var got []millrace.Digest
		tokens := 0
		err := opened.Walk(t.Context(), ranks, func(ctx context.Context, w *Walk) error {
			for {
				s, err := w.Next(ctx)
				if s == nil || err != nil {
					return err
				}
				got = append(got, s.Content)
				for r := range s.Plan.Ranks {
					for m := uint32(0); ranks > 1 && m < s.Plan.Microbatches; m++ {
						b, err := w.Build(ctx, millrace.Rank(r), m)
						if err != nil {
							return err
						}
						for k := range b.Segments {
							tokens += int(b.Segments[k].Length)
						}
					}
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
			continue
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d ranks: other steps", ranks)
		}
		if tokens < 200*20 {
			t.Fatalf("only %d tokens were built", tokens)
		}
	}
}

func TestScanKeepsToItsBudget(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		corpus(t, dir, fmt.Sprintf("big/%d.jsonl", i), 50, 3)
	}
	corpus(t, dir, "small/a.jsonl", 50)
	opened, err := Open(
		t.Context(),
		parse(
			t, dir, "quarantine: {budget: 1}\nmixture: {weights: {big: 1, small: 1}}"+fmt.Sprintf(twoSources, "", ""),
		),
		Options{},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for budget, files := range map[int64]int{0: 1, 1 << 30: 5, -1: 5} {
		last := int64(0)
		got, err := opened.Scan(t.Context(), ScanOptions{Budget: budget, Progress: func(done, total int64) {
			if done < last || done > total {
				t.Errorf("progress went from %d to %d of %d", last, done, total)
			}
			last = done
		}})
		if err != nil {
			t.Fatal(err)
		}
		if big := got[0]; big.Files != files || big.Skipped != 5-files || big.Bad != uint64(files) ||
			big.Records != uint64(50*files) ||
			big.Rejects[0].ID != "0.jsonl#3" {
			t.Errorf("budget %d: %+v", budget, big)
		}
		if !got[1].Complete() || got[1].Records != 50 {
			t.Errorf("budget %d: a source was left out: %+v", budget, got[1])
		}
	}
}

func TestProblemsNameEverySource(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(
		t.Context(), parse(t, dir, "mixture: {weights: {big: 1, small: 1}}"+fmt.Sprintf(twoSources, "", "")), Options{},
	)
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 2 {
		t.Fatalf("got %v", err)
	}
	if text := ps[0].Error(); !strings.HasPrefix(text, "m.yaml:7:15: source big: resolve path ") ||
		strings.HasSuffix(text, "invalid") {
		t.Errorf("got %q", text)
	}
}

func TestFaults(t *testing.T) {
	one := &feed.SampleError{Ordinal: 3, Quarantine: millrace.Quarantine{ID: "a"}}
	two := &feed.SampleError{Ordinal: 4, Quarantine: millrace.Quarantine{ID: "b"}}
	err := fmt.Errorf("step 3: %w", errors.Join(errors.Join(one), two))
	if got := Faults(err); len(got) != 2 || got[0].ID != "a" || got[1].ID != "b" {
		t.Errorf("got %v", got)
	}
	if got := Faults(millrace.Errorf(millrace.ErrDamaged, "x: %w", os.ErrNotExist)); got != nil {
		t.Errorf("got %v", got)
	}
}

// TestBadRecordsCountOnce checks that planning does not count again the bad records that the scan has found.
func TestBadRecordsCountOnce(t *testing.T) {
	dir := t.TempDir()
	bad := make([]int, 60)
	for i := range bad {
		bad[i] = 2 * i
	}
	corpus(t, dir, "big/a.jsonl", 400, bad...)
	for _, filter := range []string{"", ", filter: tokens > 0"} {
		c := parse(
			t,
			dir,
			"stop: {epochs: 1}\nquarantine: {budget: 0.15}\nmixture: {weights: {big: 1}}\nsources: {big: {path: "+
				"\"big/*.jsonl\""+filter+"}}\n",
		)
		r, err := Check(t.Context(), c, CheckOptions{Ranks: 1, Steps: 3, Budget: -1})
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK {
			t.Fatal(r.Problems)
		}
		if r.Sources[0].Bad != 60 {
			t.Errorf("filter %q: %d bad records of 60, problems %v", filter, r.Sources[0].Bad, r.Problems)
		}
	}
}

// TestBudgetIsThatOfARun checks that the budget is a fraction of the records that the manifest counts, as in a run. For
// a source without a count it is a fraction of at least 10,000 records, in reading order.
func TestBudgetIsThatOfARun(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "big/a.jsonl", 100, 3, 5, 7, 9)
	for mixture, want := range map[string]struct {
		allowed uint64
		ok      bool
	}{
		"shuffle: blocks\n": {10, true},
		"shuffle: global\n": {1, false},
		"shuffle: blocks\nquarantine: {budget: 0.0003}\n": {3, false},
	} {
		c := parse(
			t,
			dir,
			mixture+"stop: {epochs: 1}\nmixture: {weights: {big: 1}}\nindex_dir: "+t.TempDir()+
				"\nsources: {big: {path: \"big/*.jsonl\"}}\n",
		)
		r, err := Check(t.Context(), c, CheckOptions{Ranks: 1, Steps: 3, Budget: -1})
		if err != nil {
			t.Fatal(err)
		}
		if r.OK != want.ok || r.Sources[0].Allowed != want.allowed {
			t.Errorf("%q: allowed %d of %d, problems %v", mixture, r.Sources[0].Allowed, want.allowed, r.Problems)
		}
	}
}
