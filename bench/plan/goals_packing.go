package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/bench/plan/baseline"
	"millrace/orchestrator/planner"
)

// goal6 measures the fill of bins, and checks that no document is cut that fits into a bin.
func goal6(b *bench) ([]row, error) {
	var rows []row
	for _, g := range []struct {
		lengths string
		tokens  uint32
		bins    int // for about 8K segments
		carry   int
		least   float64
	}{
		{"pretrain", 8192, 1098, 0, 99.9}, {"pretrain", 8192, 1098, planner.AutoCarry, 99.99},
		{"longctx", 131072, 142, 0, 99.6}, {"longctx", 131072, 142, planner.AutoCarry, 99.95},
	} {
		s := shape{
			name:    g.lengths,
			lengths: b.lengths[g.lengths],
			tokens:  g.tokens,
			ranks:   1,
			columns: g.bins,
			carry:   g.carry,
		}
		sels, err := s.selected(4*b.steps+carryAge, b.documents)
		if err != nil {
			return nil, err
		}
		if err := uncut(sels); err != nil {
			return nil, err
		}
		if g.carry != 0 {
			sels = sels[carryAge:] // the carry fills up in the first steps
		}
		f := filled(s, sels)
		rows = append(rows, row{
			"G6", fmt.Sprintf("%s %s, %.0f segments a step, carry %s: fill ≥ %g %%, nothing cut that fits a bin",
				g.lengths, short(g.tokens), f.segments, carried(g.carry), g.least),
			fmt.Sprintf("%.4f %%", f.ours), atLeast(f.ours, g.least), f.others(),
		})
	}
	return rows, nil
}

// carryAge is the number of first steps in which the carry fills up.
const carryAge = 8

// carried writes a carry as the mixture file does.
func carried(carry int) string {
	if carry == planner.AutoCarry {
		return "auto"
	}
	return fmt.Sprint(carry)
}

// uncut returns an error if a document is cut although its segment does not fill a bin.
func uncut(sels []planner.Selection) error {
	for i := range sels {
		for _, seg := range sels[i].Segments {
			if seg.More && seg.Length != sels[i].SequenceLength {
				return fmt.Errorf(
					"step %s: document %s of source %d is cut after %d tokens", sels[i].Step, seg.Ordinal, seg.Source,
					seg.Length,
				)
			}
		}
	}
	return nil
}

// fills has means over steps. Fills and cut are in percent; least is the fill of the worst step. carried and segments
// are counts.
type fills struct {
	ours, least, carried, segments float64
	next, first, best, cut         float64
}

func filled(s shape, sels []planner.Selection) fills {
	n := float64(len(sels))
	f := fills{least: 100}
	for i := range sels {
		sel := &sels[i]
		lengths := lengthsOf(sel)
		fill := float64(sel.Stats.FillPPM) / 1e4
		f.ours += fill / n
		f.least = min(f.least, fill)
		f.segments += float64(len(lengths)) / n
		f.carried += float64(len(sel.After.Carried)) / n
		f.next += baseline.NextFit(lengths, s.tokens).Fill(lengths, s.tokens) / n
		f.first += baseline.FirstFit(lengths, s.tokens).Fill(lengths, s.tokens) / n
		f.best += baseline.BestFitDecreasing(lengths, s.tokens, 0).Fill(lengths, s.tokens) / n
		_, _, cut := baseline.Concatenate(lengths, s.tokens)
		f.cut += 100 * float64(cut) / float64(len(lengths)) / n
	}
	return f
}

// others lists the baselines, and the worst step.
func (f fills) others() string {
	return fmt.Sprintf(
		"the worst step %.4f %%, %.0f carried; the same segments: best-fit-decreasing %.2f %%, first-fit %.1f %%, "+
			"next-fit %.1f %%, concat cuts %.1f %% of them",
		f.least,
		f.carried,
		f.best,
		f.first,
		f.next,
		f.cut,
	)
}

// goal7 measures the rate of packing. The planner's own benchmark measures its packer, which is not exported.
func goal7(b *bench) ([]row, error) {
	rates, err := packRates()
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, g := range []struct {
		name    string
		lengths string
		tokens  uint32
		least   float64
	}{
		{"pretrain/T=2048", "pretrain", 2048, 20}, {"pretrain/T=8192", "pretrain", 8192, 20},
		{"longctx/T=32768", "longctx", 32768, 20}, {"longctx/T=131072", "longctx", 131072, 15},
	} {
		small, large := rates[g.name+"/n=8192"], rates[g.name+"/n=65536"]
		if small == 0 || large == 0 {
			return nil, fmt.Errorf("run the packer's benchmark: it printed no rate for %s", g.name)
		}
		lengths := b.lengths[g.lengths].Segments(g.tokens, 1<<16)
		rows = append(rows, row{
			"G7", fmt.Sprintf("best-fit-decreasing, %s at %s, one core: ≥ %g M segments/s",
				g.lengths, short(g.tokens), g.least),
			fmt.Sprintf("%.0f M/s in windows of 8K segments, %.0f in windows of 64K", small, large),
			atLeast(min(small, large), g.least),
			fmt.Sprintf(
				"windows of 64K, M/s: next-fit %.0f, first-fit with a tree of maxima %.1f, "+
					"a plain best-fit-decreasing %.1f",
				rate(lengths, func() { baseline.NextFit(lengths, g.tokens) }),
				rate(lengths, func() { baseline.FirstFit(lengths, g.tokens) }),
				rate(lengths, func() { baseline.BestFitDecreasing(lengths, g.tokens, 0) }),
			),
		})
	}
	return rows, nil
}

// packRates runs the packer's benchmark and returns its M segments/s by name.
func packRates() (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-cpu=1",
		"-run", "^$", "-bench", "^BenchmarkPack$", "-benchtime", "1000x", "millrace/orchestrator/planner/pack")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run the packer's benchmark: %w: run this program in the checkout", err)
	}
	rates := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if at := slices.Index(words, "Msegments/s"); at > 0 {
			rate, err := strconv.ParseFloat(words[at-1], 64)
			if err != nil {
				return nil, fmt.Errorf("read the packer's benchmark: %q: %w", line, err)
			}
			rates[strings.TrimPrefix(words[0], "BenchmarkPack/")] = rate
		}
	}
	return rates, nil
}

// rate returns the millions of segments that pack handles in a second.
func rate(lengths []uint32, pack func()) float64 {
	const rounds = 20
	pack()
	begin := processorTime()
	for range rounds {
		pack()
	}
	return float64(len(lengths)) * rounds / (processorTime() - begin).Seconds() / 1e6
}
