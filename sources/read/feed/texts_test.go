package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/pool"
	"millrace/sources/read/order"
)

// textsFeed returns a feed of blocks of 1 MB, whose texts lie in the returned file, and its stream.
func textsFeed(t *testing.T, cfg Config) (f *Feed, file *os.File, docs []referenceDoc, b *budget.Budget) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "texts"))
	if err != nil {
		t.Fatal(err)
	}
	f, docs, b = textsFeedIn(t, cfg, file)
	return f, file, docs, b
}

func textsFeedIn(t *testing.T, cfg Config, file *os.File) (f *Feed, docs []referenceDoc, b *budget.Budget) {
	t.Helper()
	c := randomCorpus(12, 3, 60)
	for i := range c.shards {
		for n := range c.shards[i] {
			c.shards[i][n] += strings.Repeat(string(rune('a'+n%26)), n%7*10_000)
		}
	}
	x := fixture{shuffle: millrace.Blocks, epochs: 2, limit: 1 << 20}
	s := x.open(t, c.write(t))
	docs, _ = referenceStream(c, x, s, 2)
	p := textsPool(t, file, true, func() {})
	b = budget.New(64 << 20)
	cfg.Budget, cfg.Pool = b, p
	return New(s, Position{}, order.Stripe{}, cfg), docs, b
}

// textsPool runs a pool whose texts lie in a file, if its disk has space.
func textsPool(t *testing.T, file *os.File, hasSpace bool, progress func()) *pool.Pool {
	t.Helper()
	texts := decode.NewFile(file, 1<<30, func() bool { return hasSpace }, slog.New(slog.DiscardHandler))
	p := pool.New(2, texts, func(large *budget.Large) *decode.Decoder { return decode.New(progress, nil, large) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := texts.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestTextsOnAFullDisk: without room in the file, the text of a block that is larger than the feed's share stays within
// the share. The stream is the reference stream, read ahead and at random, also if a disk runs full.
func TestTextsOnAFullDisk(t *testing.T) {
	c := corpus{}
	for shard := range 2 {
		var lines []string
		for n := range 300 {
			lines = append(lines, fmt.Sprintf("s%d r%d ", shard, n)+strings.Repeat(string(rune('a'+n%26)), n%9*5_000))
		}
		lines[7], lines[201] = "bad", "s0 boom"
		c.add(fmt.Sprintf("part-%d.jsonl", shard), lines...)
	}
	dir := c.write(t)
	const limit = 2 << 20
	for _, of := range []uint32{1, 3} {
		for _, isStandby := range []bool{false, true} {
			file, err := os.Create(filepath.Join(t.TempDir(), "texts"))
			if err != nil {
				t.Fatal(err)
			}
			x := fixture{shuffle: millrace.Blocks, epochs: 2, limit: 5 << 20}
			s := x.open(t, dir)
			docs, _ := referenceStream(c, x, s, 2)
			var f *Feed
			most := int64(0)
			p := textsPool(t, file, false, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				held := int64(0)
				for _, b := range f.ahead.memory.texts {
					held += b.charge
				}
				most = max(most, held)
			})
			f = New(s, Position{}, order.Stripe{Of: of, Index: of - 1},
				Config{Budget: budget.New(limit), Pool: p, Standby: isStandby})
			stop := running(t, f)
			if isStandby {
				rnd := rand.New(rand.NewPCG(12, uint64(of)))
				for at := 0; at+60 < len(docs); at += 150 {
					demand(t, f, rnd, docs, at, at+60)
				}
			} else {
				drain(t, f, 0, 40, docs)
			}
			stop()
			if least := int64(decode.SlabBytes); !isStandby && (most < least || most > limit) {
				t.Errorf("texts of blocks of 5 MB took %d bytes, and the feed may take %d", most, limit)
			}
			if info, err := file.Stat(); err != nil || info.Size() > 0 {
				t.Errorf("the file of a full disk has %d bytes: %v", info.Size(), err)
			}
		}
	}
}

// TestTextsOfAFeed: a feed whose texts lie in a file has the reference stream. It uses the places of the file again.
func TestTextsOfAFeed(t *testing.T) {
	f, file, docs, b := textsFeed(t, Config{})
	stop := running(t, f)
	drain(t, f, 0, 10, docs)
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var bytes int64
	for _, d := range docs {
		bytes += int64(len(d.tokens))
	}
	if info, err := file.Stat(); err != nil || info.Size() < decode.SlabBytes || info.Size() > bytes*2/3 {
		t.Errorf("the file has %d bytes for texts of %d: %v", info.Size(), bytes, err)
	}
	if !b.Open(func() {}).Take(64 << 20) {
		t.Error("bytes are still charged")
	}
}

// TestTextsOfRandomReads: a standby reads blocks at random, and many readers share the text of a block. The places of
// the file are used again, also those of texts that are only read for their size.
func TestTextsOfRandomReads(t *testing.T) {
	f, file, docs, _ := textsFeed(t, Config{Standby: true})
	defer running(t, f)()
	rnd := rand.New(rand.NewPCG(12, 5))
	sizes := make([]int64, 60)
	for i := range sizes {
		var readers sync.WaitGroup
		for range 3 {
			at, seed := rnd.IntN(len(docs)-3), rnd.Uint64()
			readers.Go(func() { demand(t, f, rand.New(rand.NewPCG(seed, 5)), docs, at, at+3) })
		}
		readers.Wait()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		sizes[i] = info.Size()
	}
	// Three readers have a text of 1 MB each, and one is kept.
	if last := sizes[len(sizes)-1]; last < decode.SlabBytes || last > 6<<20 {
		t.Errorf("the file grew as follows: %v", sizes)
	}
}

// TestLostTexts: a text that cannot be read back ends the feed with an error. The file is open for writing alone.
func TestLostTexts(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "texts"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f, docs, _ := textsFeedIn(t, Config{}, file)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	next := 0
	for until := millrace.Ordinal(1); err == nil; until++ {
		f.Want(until)
		var b Batch
		b, err = f.Next(context.Background())
		for _, o := range b.Offers {
			checkOffer(t, f, o, docs[next])
			next++
		}
		if b.End {
			t.Fatal("the stream ended without an error")
		}
	}
	if ran := <-done; !strings.Contains(ran.Error(), "source web: read the text of a block back") {
		t.Errorf("the feed ended with %v, and its caller got %v", ran, err)
	}
}
