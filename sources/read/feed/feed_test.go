package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"millrace"
	"millrace/mixing"
	"millrace/sources"
	"millrace/sources/facts/index"
	"millrace/sources/facts/kept"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/recent"
	"millrace/sources/read/order"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// referenceDoc is one ordinal of the stream in the reference version.
type referenceDoc struct {
	id     millrace.SampleID
	epoch  millrace.Epoch
	tokens []uint32 // of the whole document
	reject bool
	start  uint32 // of the ordinal's piece in the document
	piece  uint32 // tokens of a piece; 0: the ordinal is the whole document
}

// end returns the document's tokens up to the end of the ordinal.
func (d *referenceDoc) end() uint32 {
	if d.piece == 0 {
		return uint32(len(d.tokens))
	}
	return min(uint32(len(d.tokens)), d.start+d.piece)
}

func referenceTokens(line string, raw bool) (d referenceDoc) {
	if line == "bad" || line == "panic" || strings.Contains(line, "boom") {
		d.reject = true
		return d
	}
	for _, b := range []byte(line) {
		d.tokens = append(d.tokens, uint32(b))
	}
	if !raw {
		d.tokens = append(d.tokens, fakeEOS)
	}
	return d
}

// referenceStream lists a source's whole stream from the definition of its order.
func referenceStream(c corpus, x fixture, s *sources.Source,
	epochs int) (docs []referenceDoc, seekPoints []millrace.SeekPoint) {
	web := mixing.Text("web")
	add := func(e, shard, record int) {
		d := referenceTokens(c.shards[shard][record], x.format.lengths)
		d.id, d.epoch = millrace.SampleID{Shard: uint32(shard), Record: uint64(record)}, millrace.Epoch(e)
		docs = append(docs, d)
	}
	for e := range epochs {
		epoch := millrace.Epoch(e)
		if s.Global() != nil {
			var all [][2]int
			for shard := range c.shards {
				for r := range c.shards[shard] {
					all = append(all, [2]int{shard, r})
				}
			}
			p := mixing.NewPermutation(uint64(len(all)),
				mixing.DeriveKey(7, web, mixing.Number(uint64(e)), mixing.Text("global")))
			for i := range all {
				at := all[p.At(uint64(i))]
				add(e, at[0], at[1])
			}
			continue
		}
		start := millrace.Ordinal(len(docs))
		shards := mixing.NewPermutation(uint64(len(c.shards)),
			mixing.DeriveKey(7, web, mixing.Number(uint64(e)), mixing.Text("shards")))
		for position := range c.shards {
			shard := position
			if !s.Blocks().Plain {
				shard = int(shards.At(uint64(position)))
			}
			for from, block := 0, 0; from < len(c.shards[shard]); block++ {
				raw, until := int64(len(c.shards[shard][from])+1), from+1
				for until < len(c.shards[shard]) && raw+int64(len(c.shards[shard][until])+1) <= x.limit {
					raw += int64(len(c.shards[shard][until]) + 1)
					until++
				}
				seekPoints = append(
					seekPoints,
					millrace.SeekPoint{Ordinal: millrace.Ordinal(len(docs)), Epoch: epoch, EpochStart: start,
						Shard: uint32(position), Block: uint32(block), Record: uint64(from)},
				)
				p := mixing.NewPermutation(
					uint64(until-from),
					mixing.DeriveKey(7, web, mixing.Number(uint64(e)), mixing.Text("block"),
						mixing.Number(uint64(shard)), mixing.Number(uint64(block))),
				)
				for i := range until - from {
					r := from + i
					if !s.Blocks().Plain {
						r = from + int(p.At(uint64(i)))
					}
					add(e, shard, r)
				}
				from = until
			}
		}
	}
	return docs, seekPoints
}

// running runs a feed until the test calls the returned function.
func running(t testing.TB, f *Feed) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}

// drain reads a feed to its end in steps of a few ordinals: offers, then their tokens in random order, then a release.
func drain(t testing.TB, f *Feed, from millrace.Ordinal, step int,
	docs []referenceDoc) (seekPoints []millrace.SeekPoint) {
	t.Helper()
	ctx := context.Background()
	rnd := rand.New(rand.NewPCG(uint64(step), 2))
	var pending []Offer
	seen := from
	for want := from; ; {
		want += millrace.Ordinal(step)
		f.Want(want)
		end := false
		for !end && seen < lastOf(f.stripe, want) {
			b, err := f.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			seekPoints = append(seekPoints, b.SeekPoints...)
			for _, o := range b.Offers {
				for !f.stripe.Has(seen) {
					seen++
				}
				if o.Ordinal != seen || o.Ordinal >= want {
					t.Fatalf("offer of ordinal %d, want %d (below %d)", o.Ordinal, seen, want)
				}
				seen++
				checkOffer(t, f, o, docs[o.Ordinal])
			}
			pending = append(pending, b.Offers...)
			if b.End && int(b.EndOrdinal) != len(docs) {
				t.Fatalf("end at %d, want %d", b.EndOrdinal, len(docs))
			}
			end = b.End
		}
		fetchAll(t, f, pending, rnd, docs)
		pending = pending[:0]
		f.Release(seen)
		if end {
			break
		}
	}
	for n := seen; n < millrace.Ordinal(len(docs)); n++ {
		if f.stripe.Has(n) {
			t.Fatalf("stream ended before ordinal %d of %d", n, len(docs))
		}
	}
	return seekPoints
}

// lastOf returns the ordinal behind the stripe's last one below n.
func lastOf(s order.Stripe, n millrace.Ordinal) millrace.Ordinal {
	for n > 0 && !s.Has(n-1) {
		n--
	}
	return n
}

func checkOffer(t testing.TB, f *Feed, o Offer, want referenceDoc) {
	t.Helper()
	if o.ID != want.id || o.Epoch != want.epoch || int(o.Lengths.Tokens) != len(want.tokens) ||
		o.Offset != want.start || o.Rejected != want.reject {
		t.Fatalf("offer %+v, want %+v", o, want)
	}
	if want.reject &&
		(o.Quarantine == nil || o.Quarantine.ID != f.src.Manifest().SampleName(o.ID) ||
			o.Quarantine.Source != "web" || o.Quarantine.Reason == "") {
		t.Fatalf("offer %+v has quarantine %+v", o, o.Quarantine)
	}
}

func fetchAll(t testing.TB, f *Feed, offers []Offer, rnd *rand.Rand, docs []referenceDoc) {
	t.Helper()
	var reqs []Request
	for _, o := range offers {
		start, end := o.Offset, docs[o.Ordinal].end()
		if o.Lengths.Tokens == 0 {
			continue
		}
		off := start + rnd.Uint32N(end-start)
		reqs = append(reqs, Request{o.Ordinal, start, end - start}, Request{o.Ordinal, off, rnd.Uint32N(end - off + 1)})
	}
	rnd.Shuffle(len(reqs), func(i, j int) { reqs[i], reqs[j] = reqs[j], reqs[i] })
	got := make([]bool, len(reqs))
	err := f.Fetch(context.Background(), reqs, func(i int, tokens []uint32, _ string) error {
		r := reqs[i]
		doc := docs[r.Ordinal].tokens
		if want := doc[r.Offset:min(int(r.Offset+r.Length)+1, len(doc))]; !slices.Equal(tokens, want) {
			return fmt.Errorf("tokens of %+v: %v, want %v", r, tokens, want)
		}
		got[i] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(got, false); i >= 0 {
		t.Fatalf("request %+v was not served", reqs[i])
	}
}

func shuffles() []millrace.Shuffle {
	return []millrace.Shuffle{millrace.Global, millrace.Blocks, millrace.InFileOrder}
}

// TestFeedSameStream: with any budget, decoders, stripes and steps, the stream equals the reference version.
func TestFeedSameStream(t *testing.T) {
	c := randomCorpus(1, 5, 120)
	c.shards[2] = nil
	c.shards[3] = append(c.shards[3], "", "bad", "s3 boom", "", "last")
	dir := c.write(t)
	for _, shuffle := range shuffles() {
		x := fixture{shuffle: shuffle, epochs: 3, limit: 600}
		s := x.open(t, dir)
		docs, seekPoints := referenceStream(c, x, s, 3)
		for _, stripes := range []uint32{1, 2, 3} {
			for _, parallel := range []int{1, 2, 8} {
				for _, limit := range []int64{1, 3000, 1 << 20} {
					name := fmt.Sprintf("%s/of %d/parallel %d/budget %d", shuffle, stripes, parallel, limit)
					t.Run(name, func(t *testing.T) {
						b := budget.New(limit)
						for i := range stripes {
							f := New(s, Position{}, order.Stripe{Index: i, Of: stripes},
								Config{Budget: b, Parallel: parallel})
							stop := running(t, f)
							got := drain(t, f, 0, 1+int(limit%97), docs)
							if len(seekPoints) > 0 && !reflect.DeepEqual(got, seekPoints) {
								t.Fatalf("seek points %v, want %v", got, seekPoints)
							}
							if err := stop(); !errors.Is(err, context.Canceled) {
								t.Fatal(err)
							}
						}
						if !b.Open(func() {}).Take(limit) {
							t.Fatal("bytes are still charged")
						}
					})
				}
			}
		}
	}
}

// TestFeedRestart: a feed that begins at any ordinal, from the newest seek point, continues the stream.
func TestFeedRestart(t *testing.T) {
	c := randomCorpus(2, 3, 40)
	dir := c.write(t)
	for _, shuffle := range shuffles() {
		x := fixture{shuffle: shuffle, epochs: 2, limit: 500}
		s := x.open(t, dir)
		docs, seekPoints := referenceStream(c, x, s, 2)
		for n := 0; n <= len(docs); n++ {
			from := Position{Ordinal: millrace.Ordinal(n)}
			for _, a := range seekPoints {
				if a.Ordinal <= from.Ordinal {
					from.SeekPoint = a
				}
			}
			fresh := s
			if n%7 == 0 { // no block is known
				fresh = x.open(t, dir)
			}
			f := New(fresh, from, order.Stripe{}, Config{Budget: budget.New(1 << 20), Parallel: 2})
			stop := running(t, f)
			drain(t, f, from.Ordinal, 50, docs)
			stop()
		}
	}
}

// TestFeedStreamedFile: one file that only streams puts the source into blocks order, and the manifest has the reason.
func TestFeedStreamedFile(t *testing.T) {
	c := randomCorpus(3, 3, 30)
	c.add("stream.jsonl", "a", "b", "c")
	x := fixture{shuffle: millrace.Global, epochs: 1, limit: 100}
	s := x.open(t, c.write(t))
	if m := s.Manifest(); m.Shuffle != millrace.Blocks || m.Why != "web/stream.jsonl can only be streamed" {
		t.Fatalf("shuffle %s because %q", m.Shuffle, m.Why)
	}
	docs, _ := referenceStream(c, x, s, 1)
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
	defer running(t, f)()
	drain(t, f, 0, 10, docs)
}

// TestFeedRemembers: a second run makes the same offers from kept lengths and block tables, without reading a record.
func TestFeedRemembers(t *testing.T) {
	c := randomCorpus(4, 4, 60)
	dir := c.write(t)
	for _, shuffle := range shuffles() {
		for _, limit := range []int64{1, 1 << 20} {
			x := fixture{shuffle: shuffle, epochs: 2, limit: 700, index: t.TempDir()}
			first := x.open(t, dir)
			docs, _ := referenceStream(c, x, first, 2)
			f := New(first, Position{}, order.Stripe{}, Config{Budget: budget.New(limit), Parallel: 2})
			stop := running(t, f)
			drain(t, f, 0, 50, docs)
			stop()
			st, err := first.Stats(context.Background())
			if err != nil || st.Known != uint64(c.total()) || !st.Counted || st.Records != st.Known {
				t.Fatalf("stats %+v, %v: want %d records and their lengths", st, err, c.total())
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			y := x
			y.tokenizer = sameTokens(func([]byte) []uint32 { panic("tokenised again") }) // offers need no tokens
			second := y.open(t, dir)
			f = New(second, Position{}, order.Stripe{}, Config{Budget: budget.New(limit), Parallel: 2})
			stop = running(t, f)
			f.Want(1 << 40)
			for n := 0; n < len(docs); {
				b, err := f.Next(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range b.Offers {
					checkOffer(t, f, o, docs[n])
					n++
				}
			}
			stop()
			third := x.open(t, dir)
			f = New(third, Position{}, order.Stripe{}, Config{Budget: budget.New(limit), Parallel: 2})
			stop = running(t, f)
			drain(t, f, 0, 37, docs)
			stop()
		}
	}
}

// TestFeedManyParts: several decoders make the many parts of a span at a time. Its tokens equal the reference version,
// before its lengths are known and after.
func TestFeedManyParts(t *testing.T) {
	c := corpus{}
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf("%d %s", i, strings.Repeat("long ", 800)))
	}
	c.add("a.jsonl", lines...)
	dir := c.write(t)
	x := fixture{shuffle: millrace.Global, epochs: 1, index: t.TempDir()}
	for range 2 {
		s := x.open(t, dir)
		docs, _ := referenceStream(c, x, s, 1)
		f := New(s, Position{}, order.Stripe{}, Config{Parallel: 8})
		stop := running(t, f)
		drain(t, f, 0, 10, docs)
		stop()
	}
}

// TestFeedTokens: formats of tokens have their lengths; their tokens are served unchanged.
func TestFeedTokens(t *testing.T) {
	c := randomCorpus(5, 3, 80)
	dir := c.write(t)
	for _, shuffle := range shuffles() {
		x := fixture{format: fakeFormat{counted: true, lengths: true}, shuffle: shuffle, epochs: 2, limit: 900}
		s := x.open(t, dir)
		docs, _ := referenceStream(c, x, s, 2)
		for _, limit := range []int64{1, 1 << 20} {
			f := New(s, Position{}, order.Stripe{Index: 1, Of: 2}, Config{Budget: budget.New(limit), Parallel: 3})
			stop := running(t, f)
			drain(t, f, 0, 64, docs)
			stop()
		}
	}
}

// TestFeedEndlessTiny: a source of one record repeats many times within one span.
func TestFeedEndlessTiny(t *testing.T) {
	c := corpus{}
	c.add("empty.jsonl")
	c.add("one.jsonl", "the only record")
	dir := c.write(t)
	for _, shuffle := range shuffles() {
		x := fixture{shuffle: shuffle, limit: 100}
		s := x.open(t, dir)
		docs, _ := referenceStream(c, x, s, 300)
		f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20), Parallel: 2})
		stop := running(t, f)
		f.Want(300)
		var offers []Offer
		for len(offers) < 300 {
			b, err := f.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			offers = append(offers, b.Offers...)
		}
		for i, o := range offers {
			checkOffer(t, f, o, docs[i])
		}
		fetchAll(t, f, offers, rand.New(rand.NewPCG(1, 1)), docs)
		stop()
	}
}

// TestFeedRefuses: an empty source, and requests for a released ordinal, another stripe, an ordinal behind the end, and
// too many tokens are errors.
func TestFeedRefuses(t *testing.T) {
	empty := corpus{}
	empty.add("a.jsonl")
	empty.add("b.jsonl")
	dir := empty.write(t)
	if _, err := (fixture{shuffle: millrace.Global}).tryOpen(dir); err == nil ||
		!strings.Contains(err.Error(), "no records in 2 files") {
		t.Fatalf("open of an empty source: %v", err)
	}
	s := fixture{shuffle: millrace.Blocks}.open(t, dir)
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1)})
	f.Want(1)
	if err := f.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "no records in 2 files") {
		t.Fatalf("run of an empty source: %v", err)
	}
	if _, err := f.Next(context.Background()); err == nil || !strings.Contains(err.Error(), "no records") {
		t.Fatalf("next of an empty source: %v", err)
	}

	c := corpus{}
	c.add("a.jsonl", strings.Split(strings.Repeat("abc\n", 100), "\n")[:100]...)
	s = fixture{shuffle: millrace.Global, epochs: 1}.open(t, c.write(t))
	f = New(s, Position{}, order.Stripe{Index: 0, Of: 2}, Config{Budget: budget.New(1 << 20)})
	defer running(t, f)()
	f.Release(10)
	for _, q := range []Request{{5, 0, 1}, {40, 0, 1}, {128, 0, 1}, {12, 0, 5}} {
		ignore := func(int, []uint32, string) error { return nil }
		if err := f.Fetch(context.Background(), []Request{q}, ignore); err == nil {
			t.Errorf("fetch of %+v succeeded", q)
		}
	}
}

// TestFeedChanged: a record with another length or other tokens than at its first reading is not served. It ends the
// feed with its name.
func TestFeedChanged(t *testing.T) {
	c := corpus{}
	c.add("a.jsonl", "one", "three", "fine", "seven")
	for name, found := range map[string]kept.Length{
		"it had 5 tokens when it was first read and has 6": {Record: 1, Tokens: 5},
		"it has other tokens than when it was first read":  {Record: 1, Tokens: 6, Sum: 12345, Summed: true},
		"": {Record: 1, Tokens: 6, Sum: index.Sum([]uint32{'t', 'h', 'r', 'e', 'e', fakeEOS}), Summed: true},
	} {
		for _, standby := range []bool{false, true} {
			x := fixture{shuffle: millrace.Global, epochs: 1, index: t.TempDir()}
			s := x.open(t, c.write(t))
			s.Remember(0, []kept.Length{{Record: 0, Tokens: 4}, found, {Record: 2, Tokens: 5}, {Record: 3, Tokens: 6}})
			served, bad, err := serveAll(t, s, standby)
			if name == "" {
				if err != nil || len(served) != 4 {
					t.Errorf("standby %v: nothing changed: served %v, error %v", standby, served, err)
				}
				continue
			}
			if !errors.Is(err, millrace.ErrMismatch) || len(bad) > 0 || slices.Contains(served, 1) ||
				!strings.Contains(err.Error(), "document a.jsonl#1 of source web changed: "+name) {
				t.Errorf("standby %v, %s: served %v, bad %v, error %v", standby, name, served, bad, err)
			}
		}
	}
}

// TestFeedChangedUnverified: without verification, a record with another length than the offered one is a bad sample.
// The others are served.
func TestFeedChangedUnverified(t *testing.T) {
	c := corpus{}
	c.add("a.jsonl", "one", "three", "bad", "seven")
	x := fixture{
		shuffle: millrace.InFileOrder,
		epochs:  1,
		limit:   1 << 20,
		index:   t.TempDir(),
		verify:  sources.VerifyOff,
	}
	x.format.counted = true
	s := x.open(t, c.write(t))
	s.Remember(0,
		[]kept.Length{{Record: 0, Tokens: 4}, {Record: 1, Tokens: 5}, {Record: 2, Tokens: 3}, {Record: 3, Tokens: 6}})
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
	defer running(t, f)()
	var served []int
	err := f.Fetch(
		context.Background(),
		[]Request{{3, 0, 6}, {2, 0, 3}, {1, 0, 5}, {0, 1, 2}},
		func(i int, tokens []uint32, _ string) error {
			served = append(served, i)
			return nil
		},
	)
	if !errors.Is(err, millrace.ErrBadSample) || !slices.Equal(served, []int{3, 0}) {
		t.Fatalf("served %v, error %v", served, err)
	}
	var sample *SampleError
	if !errors.As(err, &sample) || sample.Ordinal != 1 || sample.Quarantine.ID != "a.jsonl#1" ||
		!strings.Contains(err.Error(), "a.jsonl#2") {
		t.Fatalf("error %v", err)
	}
}

// TestFeedPanics: a panic of a format's decoder at random access rejects the current record. In a stream it ends the
// feed with the record's name.
func TestFeedPanics(t *testing.T) {
	c := randomCorpus(6, 2, 50)
	c.add("z.jsonl", "fine", "panic", "fine too")
	dir := c.write(t)
	x := fixture{shuffle: millrace.Global, epochs: 1}
	s := x.open(t, dir)
	docs, _ := referenceStream(c, x, s, 1)
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
	stop := running(t, f)
	drain(t, f, 0, 20, docs)
	stop()

	x = fixture{shuffle: millrace.Blocks, epochs: 1, limit: 1000}
	s = x.open(t, dir)
	f = New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
	f.Want(1000)
	err := f.Run(context.Background())
	if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), "z.jsonl#1") {
		t.Fatalf("run: %v", err)
	}
}

// TestFeedHostFailures: a read that fails a few times is tried again. One that fails for good ends the feed and
// quarantines nothing.
func TestFeedHostFailures(t *testing.T) {
	c := randomCorpus(7, 3, 50)
	dir := c.write(t)
	synctest.Test(t, func(t *testing.T) { hostFailures(t, c, dir) })
}

func hostFailures(t *testing.T, c corpus, dir string) {
	for _, shuffle := range shuffles() {
		x := fixture{shuffle: shuffle, epochs: 1, limit: 500}
		x.fs = &flakyFS{times: 2, fail: func(_ string, off int64) bool { return off > 0 && off%3 == 0 }}
		s := x.open(t, dir)
		docs, _ := referenceStream(c, x, s, 1)
		f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
		stop := running(t, f)
		drain(t, f, 0, 20, docs)
		stop()

		x.fs = &flakyFS{
			times: -1,
			fail:  func(path string, off int64) bool { return filepath.Base(path) == "part-001.jsonl" && off > 700 },
		}
		s = x.open(t, dir)
		f = New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
		f.Want(1000)
		err := f.Run(context.Background())
		if !errors.Is(err, errFlaky) || errors.Is(err, millrace.ErrDamaged) ||
			!strings.Contains(err.Error(), "part-001.jsonl") {
			t.Fatalf("%s: run: %v", shuffle, err)
		}
	}
}

// TestFeedCancel: a waiting caller gets the end of its own context, or of the feed.
func TestFeedCancel(t *testing.T) {
	c := randomCorpus(8, 3, 50)
	s := fixture{shuffle: millrace.Blocks, limit: 500}.open(t, c.write(t))
	f := New(s, Position{}, order.Stripe{}, Config{Budget: budget.New(1 << 20)})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("next: %v", err)
	}
	if err := f.Fetch(ctx, []Request{{5, 0, 1}}, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("fetch: %v", err)
	}
	stop := running(t, f)
	waiting := make(chan error)
	go func() { _, err := f.Next(context.Background()); waiting <- err }()
	stop()
	if err := <-waiting; !errors.Is(err, errStopped) {
		t.Fatalf("next of a stopped feed: %v", err)
	}
}

// TestFeedTogether: two feeds serve their streams side by side from one budget that is too small for both.
func TestFeedTogether(t *testing.T) {
	c := randomCorpus(9, 4, 100)
	dir := c.write(t)
	b := budget.New(8000)
	documents := recent.New(b, decode.Store{})
	done := make(chan bool)
	for i, shuffle := range []millrace.Shuffle{millrace.Global, millrace.Blocks} {
		x := fixture{shuffle: shuffle, epochs: 2, limit: 900}
		s := x.open(t, dir)
		docs, _ := referenceStream(c, x, s, 2)
		f := New(s, Position{}, order.Stripe{}, Config{Budget: b, Recent: documents, Parallel: 2})
		stop := running(t, f)
		go func() {
			drain(t, f, 0, 20+i, docs)
			stop()
			done <- true
		}()
	}
	<-done
	<-done
}
