package dryrun

import (
	"context"
	"math"
	"slices"

	"millrace"
	"millrace/app/setup"
	"millrace/sources"
	"millrace/sources/store/remote"
)

// The costs of a million tokens in seconds of a core, as bench/log/2026-11.md has them for text of four bytes a token.
// They compare choices; another host has other seconds.
const (
	textBytes    = 4     // of a token
	deliverCost  = 0.045 // to plan, build and deliver
	tokeniseCost = 0.035
	unpackCost   = 0.004 // to unpack each byte once
)

// The choices of reading.
const (
	choiceCache = "token cache"
	choiceOrder = "shuffle: " // and the order
)

// reading compares the ways to read a source, nil if its records are tokens or none is known.
func (k *check) reading(ctx context.Context, i int, r *SourceReport) (*Reading, error) {
	src := k.opened.Sources[i]
	if src.HoldsTokens() || r.Tokens == 0 || r.Records == 0 {
		return nil, nil
	}
	grain, err := src.Grain(ctx)
	if sources.IsDamage(err) {
		return nil, nil // the report has the damage
	}
	if err != nil {
		return nil, err
	}
	stripes := k.stripes(r.Name)
	text := float64(textBytes) * float64(r.Tokens)
	global := globalBytes(float64(grain), text/float64(r.Records), text, float64(k.spanBytes()))
	costs := []ReadCost{
		readCost(millrace.Global, global),
		readCost(millrace.Blocks, float64(stripes)), // each stripe reads every block
	}
	if r.Why != "" {
		costs = costs[1:] // the files do not allow another order
	}
	is := millrace.Shuffle(r.Shuffle)
	if is == millrace.InFileOrder {
		costs = append(costs, readCost(is, float64(stripes)))
	}
	own := slices.IndexFunc(costs, func(c ReadCost) bool { return c.Choice == choiceOrder+string(is) })
	costs[0], costs[own] = costs[own], costs[0]
	cached := ReadCost{Choice: choiceCache, BytesRead: 1, CPU: deliverCost}
	out := &Reading{Choices: costs, Recommended: costs[0].Choice, CacheBytes: k.cacheBytes(r)}
	if k.c.KeepsTokens() {
		out.Choices = slices.Insert(costs, 0, cached)
	} else {
		out.Choices = append(costs, cached)
	}
	// A cache costs a pass of tokenising, which a second pass or one of many reads of the same bytes repays.
	if k.c.KeepsTokens() || costs[0].CPU > 2*(deliverCost+tokeniseCost) || r.Passes == nil || *r.Passes > 1.5 {
		out.Recommended = choiceCache
	}
	return out, nil
}

// share divides the sources into stripes, and reports them if profiles decide.
func (k *check) share() (err error) {
	stream := setup.Stream{Config: k.c, Facts: k.opened.Facts, Part: *k.o.Part}
	if k.shares, err = stream.Shares(); err != nil {
		return err
	}
	for i, s := range k.shares {
		if s.Work > 0 {
			if k.report.Run.Stripes == nil {
				k.report.Run.Stripes = map[string]int{}
			}
			k.report.Run.Stripes[k.c.Sources[i].Name] = s.Stripes
		}
	}
	return nil
}

// stripes returns the number of stripes of a source. It is 1 while the sizes that decide the weights are not known.
func (k *check) stripes(source string) int {
	if k.shares == nil {
		return 1
	}
	return k.shares[slices.Index(k.c.Sources.Names(), source)].Stripes
}

// readCost returns the cost of reading and tokenising in an order that unpacks the given number of bytes for each byte
// used.
func readCost(order millrace.Shuffle, bytes float64) ReadCost {
	return ReadCost{Choice: choiceOrder + string(order), BytesRead: bytes,
		CPU: deliverCost + tokeniseCost + unpackCost*bytes}
}

// globalBytes estimates the bytes that are unpacked for each byte used, if records are read in a random order of the
// whole text. They are unpacked by grains, and each grain once for all of its records in one span. All sizes are bytes.
func globalBytes(grain, record, text, span float64) float64 {
	if grain <= record || text == 0 {
		return 1
	}
	span = min(span, text)
	touched := 1 - math.Exp(-span*(grain+record)/(record*text)) // share of the grains that have a record of the span
	return max(1, text/span*touched)
}

// spanBytes returns the bytes of text that a feed reads ahead together.
func (k *check) spanBytes() int64 {
	loaders := k.o.Part.Fleet.Loaders
	feeds := (len(k.c.Sources) + loaders - 1) / loaders
	return k.o.Part.Reader.Payload / int64(feeds) / 4
}

// cacheBytes estimates the bytes of a source's documents in the token cache.
func (k *check) cacheBytes(r *SourceReport) uint64 {
	id := uint64(2)
	if t := k.report.Tokenizer; t != nil && t.Vocabulary > math.MaxUint16+1 {
		id = 4
	}
	const perRecord = 28 // its table entry, its numbers
	return r.Tokens*id + r.Records*perRecord
}

// storage predicts the bytes that are fetched from a source's store, nil if its files are local or none was read.
func (k *check) storage(ctx context.Context, i int, r *SourceReport) (*StorageReport, error) {
	scan := &k.scans[i]
	if _, ok := k.opened.files[i].(*remote.Files); !ok || scan.Bytes == 0 {
		return nil, nil
	}
	grain, err := k.opened.Sources[i].Grain(ctx)
	if err != nil && !sources.IsDamage(err) {
		return nil, err
	}
	all := float64(r.Bytes) / float64(scan.Bytes)
	needed := all * float64(scan.Taken)
	again := 1.0 // bytes that a further pass fetches, of the bytes of the first one
	var pass float64
	stripes := k.stripes(r.Name)
	switch {
	case k.c.KeepsFiles():
		pass = all * float64(scan.Blocks)
		again = max(0, 1-float64(k.c.Cache.Files)/max(pass, 1))
	case r.Shuffle == string(millrace.Global):
		pass = k.randomBytes(r, needed, float64(grain))
	default:
		pass = all * float64(max(scan.Fetched, scan.Taken)) * float64(stripes)
	}
	if k.c.KeepsTokens() {
		again = 0
	}
	out := &StorageReport{Needed: int64(needed), Exact: scan.Complete(), Pass: int64(pass)}
	if r.Passes != nil {
		run := int64(pass * (min(*r.Passes, 1) + again*max(*r.Passes-1, 0)))
		out.Run = &run
	}
	return out, nil
}

// randomBytes estimates the bytes that one pass in a random order fetches: the grains that have a record of a span, for
// each span, and the bytes between ranges that one request fetches.
func (k *check) randomBytes(r *SourceReport, needed, grain float64) float64 {
	text, span := float64(textBytes)*float64(max(r.Tokens, 1)), float64(k.spanBytes())
	record := text / float64(max(r.Records, 1))
	grains := globalBytes(grain, record, text, span)
	spans := max(text/span, 1)
	gap := float64(r.Bytes) / (float64(r.Records) / spans) // mean distance of two records of a span in the files
	between := gap - (gap+remote.MostGap)*math.Exp(-remote.MostGap/gap)
	return max(needed*grains, needed+float64(r.Records)*between)
}
