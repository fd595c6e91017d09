package feed

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/order"
)

// crowd is a tokenizer that notes how many large texts are tokenised at the same time.
type crowd struct {
	byteTokens
	now, most *atomic.Int64
}

func (c crowd) Append(dst []uint32, text []byte, _ func()) []uint32 {
	if len(text) <= sources.LargeBytes {
		return append(dst, 1)
	}
	n := c.now.Add(1)
	for old := c.most.Load(); n > old && !c.most.CompareAndSwap(old, n); old = c.most.Load() {
	}
	time.Sleep(20 * time.Millisecond) // others begin meanwhile
	c.now.Add(-1)
	return append(dst, 1, 2, 3)
}

// largeFeed is a feed of six large documents and a small one. Of the large ones, one has room at a time.
func largeFeed(t *testing.T, shuffle millrace.Shuffle, name string, c crowd) *Feed {
	t.Helper()
	var files corpus
	long := strings.Repeat("x", sources.LargeBytes*3/2)
	files.add(name, long, long, long, "small", long, long, long)
	x := fixture{shuffle: shuffle, epochs: 1, limit: 1 << 30, tokenizer: c, sample: sources.LargeBytes * 2}
	return New(x.open(t, files.write(t)), Position{}, order.Stripe{},
		Config{Budget: budget.New(64 << 20), Parallel: 4})
}

// TestLargeDocumentsAreDecodedOneByOne: reads ahead and reads at random together have as many large documents in
// memory as there is room for.
func TestLargeDocumentsAreDecodedOneByOne(t *testing.T) {
	for _, shuffle := range shuffles() {
		for _, name := range []string{"part.jsonl", "stream.jsonl"} {
			c := crowd{now: &atomic.Int64{}, most: &atomic.Int64{}}
			f := largeFeed(t, shuffle, name, c)
			stop := running(t, f)
			f.Want(7)
			var all sync.WaitGroup
			for n := range millrace.Ordinal(7) {
				all.Go(func() {
					err := f.FetchAgain(t.Context(), []Request{{n, 0, 1}},
						func(int, []uint32, string) error { return nil })
					if err != nil && !errors.Is(err, millrace.ErrInvalid) { // a block may not be found yet
						t.Errorf("%s/%s: fetch %d: %v", shuffle, name, n, err)
					}
				})
			}
			all.Wait()
			stop()
			if n := c.most.Load(); n != 1 {
				t.Errorf("%s/%s: %d large documents were decoded at the same time, want 1", shuffle, name, n)
			}
		}
	}
}

// TestAReceiverThatWaitsForALargeDocument: a receiver of one large document waits for another one, which gets room.
func TestAReceiverThatWaitsForALargeDocument(t *testing.T) {
	f := largeFeed(t, millrace.Global, "part.jsonl", crowd{now: &atomic.Int64{}, most: &atomic.Int64{}})
	stop := running(t, f)
	defer stop()
	var arrived sync.WaitGroup
	arrived.Add(7)
	var all sync.WaitGroup
	for n := range millrace.Ordinal(7) {
		all.Go(func() {
			err := f.FetchAgain(t.Context(), []Request{{n, 0, 1}}, func(int, []uint32, string) error {
				arrived.Done()
				arrived.Wait()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
