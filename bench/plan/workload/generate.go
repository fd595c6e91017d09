package workload

import (
	"bufio"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// class is a kind of document. Its length in tokens is lognormal. share is its part of the documents, not normalised.
type class struct{ median, sigma, share float64 }

// mixtures returns the classes of each checked-in histogram. The two pretraining mixtures are given as shares of tokens
// of web text, code, papers and books; sft is given as shares of short and long conversations.
func mixtures() map[string][]class {
	kinds := func(web, code, papers, books float64) []class {
		all := []class{{500, 1.10, web}, {900, 1.30, code}, {6000, 0.70, papers}, {60000, 0.90, books}}
		for i, c := range all {
			all[i].share /= c.median * math.Exp(c.sigma*c.sigma/2) // from tokens to documents
		}
		return all
	}
	fromMean := func(mean, sigma, share float64) class { return class{mean / math.Exp(sigma*sigma/2), sigma, share} }
	return map[string][]class{
		"pretrain": kinds(.75, .15, .07, .03),
		"longctx":  kinds(.35, .10, .15, .40),
		"sft":      {fromMean(1000, .9, .9989), fromMean(37000, .5, .0011)},
	}
}

// The bounds of a generated histogram. Lengths above 2048 keep their 11 highest binary digits, so that the
// file stays small.
const (
	generatedDocuments = 4_000_000
	generatedLongest   = 1 << 20
	generatedDigits    = 11
)

// Generate writes the checked-in histograms to a directory. Every call writes the same bytes.
func Generate(dir string) error {
	for name, classes := range mixtures() {
		if err := writeHistogram(filepath.Join(dir, name+".csv"), drawMixture(classes)); err != nil {
			return fmt.Errorf("generate %s: %w", name, err)
		}
	}
	return nil
}

func drawMixture(classes []class) map[uint32]uint64 {
	rng := rand.New(rand.NewPCG(5, 3))
	total := 0.0
	for _, c := range classes {
		total += c.share
	}
	counts := map[uint32]uint64{}
	for range generatedDocuments {
		at, in := rng.Float64()*total, 0
		for in < len(classes)-1 && at >= classes[in].share {
			at -= classes[in].share
			in++
		}
		x := classes[in].median * math.Exp(classes[in].sigma*rng.NormFloat64())
		length := uint32(min(max(x, 1), generatedLongest))
		if more := bits.Len32(length) - generatedDigits; more > 0 {
			length = length >> more << more
		}
		counts[length]++
	}
	return counts
}

func writeHistogram(path string, counts map[uint32]uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	h := newHistogram(path, counts)
	out := bufio.NewWriter(f)
	fmt.Fprintln(out, "length,count")
	for _, length := range h.lengths {
		fmt.Fprintf(out, "%d,%d\n", length, counts[length])
	}
	if err := out.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
