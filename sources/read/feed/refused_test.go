package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"millrace"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
)

// keptAbove returns the set of the filter that keeps documents of more than so many tokens.
func keptAbove(t *testing.T, tokens int) *filter.Set {
	t.Helper()
	f, err := filter.Compile(fmt.Sprintf("tokens > %d", tokens))
	if err != nil {
		t.Fatal(err)
	}
	set, err := filter.NewSet(f)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// fetchKept reads a feed to its end and fetches every document that its filter keeps. It returns their number.
func fetchKept(t *testing.T, f *Feed, docs []referenceDoc, least int) (kept int) {
	t.Helper()
	ctx := context.Background()
	for want := millrace.Ordinal(0); ; {
		want += 40
		f.Want(want)
		var reqs []Request
		b, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range b.Offers {
			if isKept := len(docs[o.Ordinal].tokens) > least; isKept != (o.Refused&filter.Own == 0) {
				t.Fatalf("offer %+v of a document of %d tokens", o, len(docs[o.Ordinal].tokens))
			} else if isKept {
				reqs = append(reqs, Request{Ordinal: o.Ordinal, Length: o.Lengths.Tokens})
			}
		}
		err = f.Fetch(ctx, reqs, func(i int, tokens []uint32, _ string) error {
			kept++
			if !slices.Equal(tokens, docs[reqs[i].Ordinal].tokens) {
				return fmt.Errorf("wrong tokens of %+v", reqs[i])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(b.Offers); n > 0 {
			f.Release(b.Offers[n-1].Ordinal + 1)
		}
		if b.End {
			return kept
		}
	}
}

// TestRefusedDocumentsAreNotMade: once the lengths and the answers of filters are known, no document that the source's
// own filter refuses is tokenised. Where records are read alone, it is not decoded either.
func TestRefusedDocumentsAreNotMade(t *testing.T) {
	const least = 400
	c := corpus{}
	for shard := range 3 {
		var lines []string
		for r := range 200 {
			long := 0
			if r%8 == shard && shard < 2 { // the filter refuses every document of the last shard
				long = least
			}
			lines = append(lines, fmt.Sprintf("s%d r%d ", shard, r)+strings.Repeat("x", long+r%50))
		}
		c.add(fmt.Sprintf("part-%d.jsonl", shard), lines...)
	}
	dir := c.write(t)
	for _, shuffle := range shuffles() {
		t.Run(string(shuffle), func(t *testing.T) {
			var decoded, tokenised atomic.Int64
			count := func(refused *atomic.Int64, bytes int) {
				if bytes < least {
					refused.Add(1)
				}
			}
			x := fixture{shuffle: shuffle, epochs: 2, limit: 4000, index: t.TempDir(), filters: keptAbove(t, least)}
			x.format.decoded = func(bytes int) { count(&decoded, bytes) }
			x.tokenizer = sameTokens(func(text []byte) []uint32 {
				count(&tokenised, len(text))
				return byteTokens{}.Append(nil, text, nil)
			})
			for round := range 2 { // the first finds the lengths
				s := x.open(t, dir)
				docs, _ := referenceStream(c, x, s, 2)
				decoded.Store(0)
				tokenised.Store(0)
				f := New(s, Position{}, order.Stripe{}, Config{Parallel: 2})
				stop := running(t, f)
				kept := fetchKept(t, f, docs, least)
				stop()
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if kept != 2*50 {
					t.Fatalf("%d documents were kept", kept)
				}
				if n := tokenised.Load(); (n > 0) != (round == 0) {
					t.Errorf("round %d: %d documents were tokenised that the filter refuses", round, n)
				}
				if n := decoded.Load(); round > 0 && n > 0 && shuffle == millrace.Global {
					t.Errorf("%d records were decoded that the filter refuses", n)
				}
			}
		})
	}
}
