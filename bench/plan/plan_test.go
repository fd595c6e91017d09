package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHistogramsSayWhichLineIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"length,count\n5,1\n5;1\n":            `lengths.csv:3: "5;1" is not length,count`,
		"0,1\n":                               `lengths.csv:1: length "0"`,
		"# mine\n\n99999999999,1\n":           `lengths.csv:3: length "99999999999"`,
		"7,-1\n":                              `lengths.csv:1: count "-1"`,
		"7,1.5\n":                             `lengths.csv:1: count "1.5"`,
		"7,9223372036854775807\n":             "lengths.csv:1: the counts add up",
		"length,count\n":                      "it counts no document",
		"7,0\n":                               "it counts no document",
		"":                                    "it counts no document",
		"length,count\n7,1\nlength,count\n":   `lengths.csv:3: length "length"`,
		"7," + strings.Repeat("9", 30) + "\n": `lengths.csv:1: count`,
	} {
		_, err := readHistogram("lengths.csv", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := openHistogram(filepath.Join(t.TempDir(), "none.csv")); !os.IsNotExist(err) && err == nil {
		t.Error("a file that is not there was read")
	}
}

// Lengths are drawn as often as they are counted.
func TestHistogramsDrawWhatTheyCount(t *testing.T) {
	h, err := readHistogram("lengths.csv", strings.NewReader("length,count\n10, 1\n20,0\n30,5\n7,2\n30,2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint32{7, 10, 30}; !slices.Equal(h.lengths, want) || h.documents() != 10 || h.mean() != 23.4 {
		t.Fatalf("lengths %v of %d documents, mean %g; want %v, 10, 23.4", h.lengths, h.documents(), h.mean(), want)
	}
	counts := map[uint32]int{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		counts[h.draw(rng)]++
	}
	for length, want := range map[uint32]float64{7: 20_000, 10: 10_000, 30: 70_000} {
		if got := float64(counts[length]); math.Abs(got-want) > 1000 {
			t.Errorf("length %d was drawn %g times, want about %g", length, got, want)
		}
	}
}

// A baseline that was wrong would flatter the product.
func TestBaselinesLoseNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	m := dense8B()
	for range 30 {
		lengths := make([]uint32, 200+rng.IntN(200))
		total, tokens := 0.0, uint64(0)
		for i := range lengths {
			lengths[i] = 1 + rng.Uint32N(1+rng.Uint32N(1000))
			total += m.of(lengths[i])
			tokens += uint64(lengths[i])
		}
		for name, p := range map[string]packed{
			"best-fit": bestFitDecreasing(lengths, 1000, 0), "next-fit": nextFit(lengths, 1000), "first-fit": firstFit(lengths, 1000),
		} {
			full := make([]uint64, p.full)
			for i, b := range p.bin {
				full[b] += uint64(lengths[i])
			}
			if slices.Max(full) > 1000 || slices.Min(full) == 0 {
				t.Errorf("%s: bins of %d to %d tokens, the capacity is 1000", name, slices.Min(full), slices.Max(full))
			}
		}
		pieces, p, _ := concatenate(lengths, 1000)
		if sum(pieces) != tokens || p.full != int((tokens+999)/1000) {
			t.Errorf("concat: %d tokens in %d bins of 1000, there are %d", sum(pieces), p.full, tokens)
		}
		lpt, lost := longestProcessingTime(lengths, m, 8, 1<<40)
		for name, sums := range map[string][]float64{"LPT": lpt, "snake": snake(lengths, m, 8), "Karmarkar-Karp": karmarkarKarp(lengths, m, 8)} {
			got := 0.0
			for _, x := range sums {
				got += x
			}
			if math.Abs(got/total-1) > 1e-9 || lost > 0 || gap(sums, 0) < 0 {
				t.Errorf("%s: bins add up to %g, the segments to %g", name, got, total)
			}
		}
		if kk, back := gap(karmarkarKarp(lengths, m, 8), 0), gap(snake(lengths, m, 8), 0); kk > back {
			t.Errorf("Karmarkar-Karp is %g %% over the mean, dealing back and forth %g %%", kk, back)
		}
	}
}

func sum(lengths []uint32) (total uint64) {
	for _, l := range lengths {
		total += uint64(l)
	}
	return total
}

// The overheads of a grid that is small enough to add up in the head.
func TestOverheads(t *testing.T) {
	g := &grid{ranks: 2, columns: 2, load: []float64{3, 1, 2, 2}}
	want := overheads{fsdp: 25, dp: 0, pp8: 100 * ((4+7*3)/(4*4.5) - 1)}
	if got := g.overheads(); math.Abs(got.fsdp-want.fsdp)+math.Abs(got.dp-want.dp)+math.Abs(got.pp8-want.pp8) > 1e-9 {
		t.Errorf("overheads %+v, want %+v", got, want)
	}
}

// The goals that are no times, at an eighth of the ranks and with one step each. What is missed there is named here, so that nothing else is.
func TestGoals(t *testing.T) {
	b, err := newBench()
	if err != nil {
		t.Fatal(err)
	}
	b.divide, b.documents, b.steps, b.draws = 8, 1<<18, 1, 400_000
	var missing []string
	for _, g := range goals() {
		if g.timed {
			continue
		}
		rows, err := g.measure(b)
		if err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		for i, r := range rows {
			t.Logf("%s: %s: %s %s", r.goal, r.claim, r.figure, r.result)
			if r.result == missed {
				missing = append(missing, fmt.Sprintf("%s.%d", r.goal, i))
			}
		}
	}
	known := []string{
		"G3.1",                         // with bins as full as these, a perfect plan would be 1.076 times as fast
		"G8.1", "G8.3", "G8.5", "G8.7", // samples across milestones and leaves: below 2, not below 1
	}
	if !slices.Equal(missing, known) {
		t.Errorf("missed: %v, want %v", missing, known)
	}
}
