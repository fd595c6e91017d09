package main

import (
	"bufio"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// class is a kind of document: its length is lognormal. share is its part of a mixture's tokens or, of sft, of its documents.
type class struct{ median, sigma, share float64 }

// mixtures are those of PLANNING §3, with shares of documents.
func mixtures() map[string][]class {
	kinds := func(web, code, papers, books float64) []class {
		all := []class{{500, 1.10, web}, {900, 1.30, code}, {6000, 0.70, papers}, {60000, 0.90, books}}
		for i, c := range all {
			all[i].share /= c.median * math.Exp(c.sigma*c.sigma/2) // tokens to documents
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

// Lengths of a generated histogram: up to 2^21 tokens, exact below 2048 and to 11 binary digits above.
const (
	generatedDocuments = 4_000_000
	generatedLongest   = 1 << 20
	generatedDigits    = 11
)

// generate writes the histograms that are checked in, the same ones every time.
func generate(dir string) error {
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
