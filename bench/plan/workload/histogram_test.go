package workload

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHistogramErrorsNameTheLine(t *testing.T) {
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
		_, err := Read("lengths.csv", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none.csv")); !os.IsNotExist(err) && err == nil {
		t.Error("a missing file was read")
	}
}

// A length is drawn in proportion to its count.
func TestDrawFollowsTheCounts(t *testing.T) {
	h, err := Read("lengths.csv", strings.NewReader("length,count\n10, 1\n20,0\n30,5\n7,2\n30,2\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []uint32{7, 10, 30}; !slices.Equal(h.lengths, want) || h.Documents() != 10 || h.Mean() != 23.4 {
		t.Fatalf("lengths %v of %d documents, mean %g; want %v, 10, 23.4", h.lengths, h.Documents(), h.Mean(), want)
	}
	counts := map[uint32]int{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		counts[h.Draw(rng)]++
	}
	for length, want := range map[uint32]float64{7: 20_000, 10: 10_000, 30: 70_000} {
		if got := float64(counts[length]); math.Abs(got-want) > 1000 {
			t.Errorf("length %d was drawn %g times, want about %g", length, got, want)
		}
	}
}
