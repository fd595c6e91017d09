package main

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
var corpora embed.FS

// longestDocument is the most tokens of a document in a histogram.
const longestDocument = 1<<31 - 1

// histogram is how many documents there are of each length.
type histogram struct {
	name    string
	lengths []uint32 // rising
	until   []uint64 // by length: documents of it and of all shorter ones
	guide   []uint32 // by the high bits of a rank: where to look for its length
	stride  uint64   // ranks that share an entry of guide
}

// readHistogram reads lines of length,count. A first line without digits is a heading; empty lines and those that begin with # are passed over.
func readHistogram(name string, r io.Reader) (*histogram, error) {
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
	if err != nil || l == 0 || l > longestDocument {
		return 0, 0, fmt.Errorf("length %q is no whole number from 1 to %d", first, longestDocument)
	}
	count, err = strconv.ParseUint(strings.TrimSpace(second), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("count %q is no whole number", second)
	}
	return uint32(l), count, nil
}

func newHistogram(name string, counts map[uint32]uint64) *histogram {
	h := &histogram{name: name}
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

func (h *histogram) documents() uint64 { return h.until[len(h.until)-1] }

// draw returns the length of a document taken at random.
func (h *histogram) draw(rng *rand.Rand) uint32 {
	rank := rng.Uint64N(h.documents())
	at := h.guide[rank/h.stride]
	for h.until[at] <= rank {
		at++
	}
	return h.lengths[at]
}

// mean is the documents' mean length.
func (h *histogram) mean() float64 {
	sum, before := 0.0, uint64(0)
	for i, length := range h.lengths {
		sum += float64(length) * float64(h.until[i]-before)
		before = h.until[i]
	}
	return sum / float64(before)
}

// openHistogram reads a file, or one of the histograms that are checked in: pretrain, longctx, sft.
func openHistogram(name string) (*histogram, error) {
	if f, err := corpora.Open("testdata/" + name + ".csv"); err == nil {
		defer f.Close()
		return readHistogram(name, f)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read lengths: %w", err)
	}
	defer f.Close()
	return readHistogram(name, f)
}
