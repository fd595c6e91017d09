package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// goal7 is how fast segments are packed. The packer is the planner's own affair, so its benchmark measures it, and this table says what came of it.
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
		{"pretrain/T=2048", "pretrain", 2048, 20}, {"pretrain/T=8192", "pretrain", 8192, 20}, {"longctx/T=32768", "longctx", 32768, 20},
		{"longctx/T=131072", "longctx", 131072, 15},
	} {
		small, large := rates[g.name+"/n=8192"], rates[g.name+"/n=65536"]
		lengths := b.cut(g.lengths, g.tokens, 1<<16)
		rows = append(rows, row{"G7", fmt.Sprintf("best-fit-decreasing, %s at %s, one core: ≥ %g M segments/s", g.lengths, short(g.tokens), g.least),
			fmt.Sprintf("%.0f M/s in windows of 8K segments, %.0f in windows of 64K", small, large), atLeast(min(small, large), g.least),
			fmt.Sprintf("windows of 64K, M/s: next-fit %.0f, first-fit with a tree of maxima %.1f, a plain best-fit-decreasing %.1f",
				rate(lengths, func() { nextFit(lengths, g.tokens) }), rate(lengths, func() { firstFit(lengths, g.tokens) }), rate(lengths, func() { bestFitDecreasing(lengths, g.tokens, 0) }))})
	}
	return rows, nil
}

// packRates runs the planner's benchmark and returns its M segments/s by name.
func packRates() (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-cpu=1", "-run", "^$", "-bench", "^BenchmarkPack$", "-benchtime", "1000x", "millrace/orchestrator/planner")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run the planner's benchmark: %w: run this from the checkout", err)
	}
	rates := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if at := slices.Index(words, "Msegments/s"); at > 0 {
			rate, err := strconv.ParseFloat(words[at-1], 64)
			if err != nil {
				return nil, fmt.Errorf("read the planner's benchmark: %q: %w", line, err)
			}
			rates[strings.TrimPrefix(words[0], "BenchmarkPack/")] = rate
		}
	}
	return rates, nil
}

// cut draws segments: documents longer than a bin are cut.
func (b *bench) cut(name string, capacity uint32, n int) []uint32 {
	rng := rand.New(rand.NewPCG(seed, 6))
	lengths := make([]uint32, 0, n)
	for len(lengths) < n {
		l := b.lengths[name].draw(rng)
		for ; l > capacity && len(lengths) < n-1; l -= capacity {
			lengths = append(lengths, capacity)
		}
		lengths = append(lengths, min(l, capacity))
	}
	return lengths
}

// rate is how many million segments a second are packed.
func rate(lengths []uint32, pack func()) float64 {
	const rounds = 20
	pack()
	begin := processorTime()
	for range rounds {
		pack()
	}
	return float64(len(lengths)) * rounds / (processorTime() - begin).Seconds() / 1e6
}
