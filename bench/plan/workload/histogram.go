// Package workload makes the inputs of the planner's benchmark: document lengths, endless sources and runs over them.
// Each input follows from a histogram that is checked in and from a fixed seed, so every run measures the same data.
package workload

import (
	"bufio"
	"embed"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
)

//go:embed testdata/*.csv
var histograms embed.FS

// LongestDocument is the largest length in tokens that a histogram may have.
const LongestDocument = 1<<31 - 1

// Histogram counts documents by length.
type Histogram struct {
	name    string
	lengths []uint32 // rising
	until   []uint64 // by index of lengths: the number of documents of this length or a shorter one
	guide   []uint32 // guide[n/stride] is the index of lengths at which the search for document n begins
	stride  uint64   // documents that share an entry of guide
}

// Read parses lines of length,count. It ignores empty lines, lines that begin with #, and a first line without digits.
func Read(name string, r io.Reader) (*Histogram, error) {
	counts := map[uint32]uint64{}
	lines := bufio.NewScanner(r)
	total := uint64(0)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' || n == 1 && !strings.ContainsAny(text, "0123456789") {
			continue
		}
		length, count, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("read lengths: %s:%d: %w", name, n, err)
		}
		if total += count; total > 1<<62 || count > 1<<62 {
			return nil, fmt.Errorf("read lengths: %s:%d: the counts add up to more than 2^62 documents", name, n)
		}
		counts[length] += count
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read lengths: %s: %w", name, err)
	}
	if total == 0 {
		return nil, fmt.Errorf("read lengths: %s: it counts no document; write lines of length,count", name)
	}
	return newHistogram(name, counts), nil
}

func parseLine(text string) (length uint32, count uint64, err error) {
	first, second, ok := strings.Cut(text, ",")
	if !ok {
		return 0, 0, fmt.Errorf("%q is not length,count", text)
	}
	l, err := strconv.ParseUint(strings.TrimSpace(first), 10, 64)
	if err != nil || l == 0 || l > LongestDocument {
		return 0, 0, fmt.Errorf("length %q is no whole number from 1 to %d", first, LongestDocument)
	}
	count, err = strconv.ParseUint(strings.TrimSpace(second), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("count %q is no whole number", second)
	}
	return uint32(l), count, nil
}

func newHistogram(name string, counts map[uint32]uint64) *Histogram {
	h := &Histogram{name: name}
	for length, count := range counts {
		if count > 0 {
			h.lengths = append(h.lengths, length)
		}
	}
	slices.Sort(h.lengths)
	total := uint64(0)
	for _, length := range h.lengths {
		total += counts[length]
		h.until = append(h.until, total)
	}
	const entries = 1 << 16
	h.stride = total/entries + 1
	at := uint32(0)
	for rank := uint64(0); rank < total; rank += h.stride {
		for h.until[at] <= rank {
			at++
		}
		h.guide = append(h.guide, at)
	}
	return h
}

// Name returns the name under which the histogram was opened.
func (h *Histogram) Name() string { return h.name }

// Documents returns the number of documents.
func (h *Histogram) Documents() uint64 { return h.until[len(h.until)-1] }

// Draw returns the length of a random document.
func (h *Histogram) Draw(rng *rand.Rand) uint32 {
	rank := rng.Uint64N(h.Documents())
	at := h.guide[rank/h.stride]
	for h.until[at] <= rank {
		at++
	}
	return h.lengths[at]
}

// Segments draws documents and cuts those that are longer than a bin. It returns the lengths of n segments.
func (h *Histogram) Segments(capacity uint32, n int) []uint32 {
	rng := rand.New(rand.NewPCG(Seed, 6))
	lengths := make([]uint32, 0, n)
	for len(lengths) < n {
		l := h.Draw(rng)
		for ; l > capacity && len(lengths) < n-1; l -= capacity {
			lengths = append(lengths, capacity)
		}
		lengths = append(lengths, min(l, capacity))
	}
	return lengths
}

// Mean returns the mean length of the documents.
func (h *Histogram) Mean() float64 {
	sum, before := 0.0, uint64(0)
	for i, length := range h.lengths {
		sum += float64(length) * float64(h.until[i]-before)
		before = h.until[i]
	}
	return sum / float64(before)
}

// Open reads one of the checked-in histograms (pretrain, longctx, sft) or else the file of that name.
func Open(name string) (*Histogram, error) {
	if f, err := histograms.Open("testdata/" + name + ".csv"); err == nil {
		defer f.Close()
		return Read(name, f)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read lengths: %w", err)
	}
	defer f.Close()
	return Read(name, f)
}
