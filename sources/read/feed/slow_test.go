package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace"
	"millrace/internal/failpoint"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/pool"
	"millrace/sources/read/feed/recent"
	"millrace/sources/read/order"
)

// slowTokens takes 40 ms for a text.
type slowTokens struct{ byteTokens }

func (t slowTokens) Append(dst []uint32, text []byte, tell func()) []uint32 {
	time.Sleep(40 * time.Millisecond)
	return t.byteTokens.Append(dst, text, tell)
}

// TestSlowRecordsOfManyFeeds: the feeds of a loader that has just got their stripes serve documents soon, although a
// decoder would be busy for 10 s with 256 KiB of one of them. The stream is that of fast records.
func TestSlowRecordsOfManyFeeds(t *testing.T) {
	const feeds, decoders, first, rounds = 16, 2, 8, 6
	for _, shuffle := range []millrace.Shuffle{millrace.Global, millrace.Blocks} {
		t.Run(fmt.Sprint(shuffle), func(t *testing.T) {
			var c corpus
			var lines []string
			for i := range 400 {
				lines = append(lines, fmt.Sprintf("record %d ", i)+strings.Repeat("x", 1000))
			}
			c.add("web.jsonl", lines...)
			dir := c.write(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				shared := pool.New(decoders, nil, func(large *budget.Large) *decode.Decoder {
					return decode.New(func() {}, (*failpoint.Set)(nil), large)
				})
				var running, fetching sync.WaitGroup
				running.Go(func() { _ = shared.Run(ctx) })
				room := budget.New(64 << 20)
				documents := recent.New(room, shared.Store())
				waits := make([]time.Duration, feeds) // the longest one of each feed
				for i := range feeds {
					x := fixture{shuffle: shuffle, epochs: 1, limit: 1 << 20, tokenizer: slowTokens{}}
					s := x.open(t, dir)
					docs, _ := referenceStream(c, x, s, 1)
					f := New(s, Position{}, order.Stripe{}, Config{Budget: room, Recent: documents, Pool: shared})
					running.Go(func() { _ = f.Run(ctx) })
					fetching.Go(func() {
						began := time.Now()
						rnd := rand.New(rand.NewPCG(1, 2))
						for seen := 0; seen < rounds*first; {
							f.Want(millrace.Ordinal(seen + first))
							batch, err := f.Next(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							fetchAll(t, f, batch.Offers, rnd, docs)
							waits[i], began = max(waits[i], time.Since(began)), time.Now()
							seen += len(batch.Offers)
							f.Release(millrace.Ordinal(seen))
						}
					})
				}
				fetching.Wait()
				if longest := slices.Max(waits); longest > 4*time.Second {
					t.Errorf("a feed let %d documents wait for %v", first, longest)
				}
				stop()
				running.Wait()
			})
		})
	}
}
