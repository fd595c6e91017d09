package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
)

// What a standing-by feed keeps, beside the text of one block.
const (
	warmRecords = 32       // made after the cursor
	warmBytes   = 1 << 20  // of tokens of those, about
	warmShare   = 32       // of so many that its primary has read meanwhile one at most is made, but for the first time
	asideBytes  = 16 << 20 // of tokens made at random that are kept
)

// aside is what a feed has that is asked at random, without the spans that lie before: one that stands by, and, where
// records can be read one by one, every feed until its spans have caught up. Its own mutex guards it; it is never
// held together with the feed's.
type aside struct {
	mu        sync.Mutex
	below     millrace.Ordinal
	seekPoint millrace.SeekPoint // newest known that is not after below; block orders
	warmed    millrace.Ordinal
	made      map[millrace.Ordinal]document
	order     []millrace.Ordinal // of made, oldest first
	size      int64

	reading sync.Mutex // held while a block's text is read: who needs the same one waits for it
	text    *rawBlock
	of      millrace.SeekPoint // whose text it is
}

// document is one whole sample.
type document struct {
	id     millrace.SampleID
	tokens []uint32
}

// Follow actions a standing-by feed's cursor: nothing below is asked for any more. The seek point is the newest known
// that is not after it.
func (f *Feed) Follow(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	f.mu.Lock()
	a := f.aside
	if f.quota == nil && below >= f.from {
		f.from = below
		f.start(Position{below, seekPoint})
	}
	f.mu.Unlock()
	if a != nil {
		a.follow(below, seekPoint)
	}
}

func (a *aside) follow(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.below = max(a.below, below)
	if seekPoint.Ordinal > a.seekPoint.Ordinal && seekPoint.Ordinal <= a.below {
		a.seekPoint = seekPoint
	}
	a.order = slices.DeleteFunc(a.order, func(n millrace.Ordinal) bool {
		if n < a.below {
			a.forget(n)
		}
		return n < a.below
	})
}

// forget drops a document; the caller takes it out of order.
func (a *aside) forget(n millrace.Ordinal) {
	a.size -= 4 * int64(len(a.made[n].tokens))
	delete(a.made, n)
}

func (a *aside) keep(n millrace.Ordinal, id millrace.SampleID, tokens []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.made[n]; ok || n < a.below || 4*int64(len(tokens)) > asideBytes/4 {
		return
	}
	a.made[n] = document{id, slices.Clone(tokens)}
	a.order = append(a.order, n)
	for a.size += 4 * int64(len(tokens)); a.size > asideBytes; a.order = a.order[1:] {
		a.forget(a.order[0])
	}
}

func (a *aside) held(n millrace.Ordinal) (d document, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, ok = a.made[n]
	return d, ok
}

// Warm makes the first few documents after the cursor of a standing-by feed, if it has moved: files are open then,
// what lies there is in the system's cache, and the first sample of a takeover is at hand.
func (f *Feed) Warm(ctx context.Context) error {
	a := f.standing()
	if a == nil {
		return nil
	}
	a.mu.Lock()
	from, was := a.below, a.warmed
	a.mu.Unlock()
	if from == was {
		return nil
	}
	f.mu.Lock()
	end, n := f.end, uint64(max(min(warmBytes/f.sizes.record(), warmRecords), 1))
	f.mu.Unlock()
	if from > was {
		n = min(n, max(uint64(from-was)/uint64(f.stripe.Of)/warmShare, 1))
	}
	var wanted []want
	for position := f.stripe.Position(from); n > 0 && f.stripe.Ordinal(position) < end; position, n = position+1, n-1 {
		wanted = append(wanted, want{ordinal: f.stripe.Ordinal(position)})
	}
	var sample *SampleError
	if err := f.readAside(ctx, a, wanted, nil); err != nil && !errors.As(err, &sample) && !errors.Is(err, errPastEnd) {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.warmed = from
	return nil
}

// errPastEnd: a block order's stream turned out to end before an ordinal.
var errPastEnd = errors.New("the stream has ended")

func (f *Feed) standing() *aside {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aside
}

// asideFor returns what reads requests at random, nil where spans serve them. A feed that never stood by reads at
// random only what lies within lengths that it knows: what it does not, its spans find out first, and what is wrong
// with the rest is theirs to say.
func (f *Feed) asideFor(ctx context.Context, reqs []Request) (*aside, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.asked = true }()
	for _, r := range reqs {
		if f.aside == nil || f.cfg.Standby {
			break
		}
		if known, err := f.knows(ctx, r); err != nil || !known {
			return nil, err
		}
	}
	return f.aside, nil
}

// knows waits until the lengths around a request were looked up, and tells whether it lies within them; the mutex is
// held.
func (f *Feed) knows(ctx context.Context, r Request) (bool, error) {
	position := f.stripe.Position(r.Ordinal)
	for {
		if err := f.servable(r.Ordinal, position); err != nil {
			return false, err
		}
		if p := f.spanAt(position); p != nil && p.stage > gathering {
			return p.known && uint64(r.Offset)+uint64(r.Length) <= uint64(p.slots[position-p.lo].length), nil
		}
		f.demanded = max(f.demanded, position+1)
		f.idle.Broadcast()
		if err := f.wait(ctx); err != nil {
			return false, err
		}
	}
}

// want is one document that is asked for aside, and the requests for parts of it.
type want struct {
	ordinal millrace.Ordinal
	reqs    []int
}

// fetchAside serves from spans what they hold, and reads the rest at random. Once spans hold most of what is asked,
// the feed is like any other from the next fetch on.
func (f *Feed) fetchAside(ctx context.Context, a *aside, reqs []Request, byOrdinal []int, emit func(int, []uint32) error) error {
	var wanted []want
	var bad error
	held := 0
	for len(byOrdinal) > 0 {
		n := reqs[byOrdinal[0]].Ordinal
		p, err := f.pinHeld(n)
		if err != nil {
			return err
		}
		w := want{ordinal: n}
		for len(byOrdinal) > 0 && reqs[byOrdinal[0]].Ordinal == n {
			w.reqs = append(w.reqs, byOrdinal[0])
			byOrdinal = byOrdinal[1:]
		}
		if p == nil {
			wanted = append(wanted, w)
			continue
		}
		held++
		for _, i := range w.reqs {
			if bad, err = gather(bad, f.emitOne(p, i, reqs[i], emit)); err != nil {
				break
			}
		}
		f.unpin(p)
		if err != nil {
			return err
		}
	}
	if held > len(wanted) {
		f.mu.Lock()
		f.aside = nil
		f.mu.Unlock()
	}
	f.cfg.Budget.Hurry()
	err := f.readAside(ctx, a, wanted, serving(reqs, emit))
	f.cfg.Budget.Calm()
	bad, err = gather(bad, err)
	return errors.Join(bad, err)
}

// gather puts bad samples aside and returns any other error as it is.
func gather(bad, err error) (samples, other error) {
	var sample *SampleError
	if errors.As(err, &sample) {
		return errors.Join(bad, err), nil
	}
	return bad, err
}

// pinHeld is pin where nobody waits: nil where the tokens are not held.
func (f *Feed) pinHeld(n millrace.Ordinal) (*span, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	position := f.stripe.Position(n)
	if err := f.servable(n, position); err != nil {
		return nil, err
	}
	f.demanded = max(f.demanded, position+1)
	f.idle.Broadcast()
	if p := f.spanAt(position); p != nil && p.held {
		p.pins++
		return p, nil
	}
	return nil, nil
}

// server hands on a document's tokens, or what is wrong with it, to who asked for it.
type server func(s *sources.Source, w want, id millrace.SampleID, tokens []uint32, bad *millrace.Quarantine) error

func serving(reqs []Request, emit func(int, []uint32) error) server {
	return func(s *sources.Source, w want, id millrace.SampleID, tokens []uint32, bad *millrace.Quarantine) error {
		for _, i := range w.reqs {
			r := reqs[i]
			until := uint64(r.Offset) + uint64(r.Length)
			if bad == nil && until > uint64(len(tokens)) {
				bad = &millrace.Quarantine{Source: s.Name(), ID: s.SampleName(id.Shard, id.Record), Offset: -1,
					Reason: fmt.Sprintf("tokens %d to %d were asked and it has %d: the file or the length store changed", r.Offset, until, len(tokens))}
			}
			if bad != nil && until > 0 {
				return &SampleError{Ordinal: r.Ordinal, Quarantine: *bad}
			}
			if err := emit(i, tokens[r.Offset:min(until+1, uint64(len(tokens))):len(tokens)]); err != nil {
				return err
			}
		}
		return nil
	}
}

// readAside makes documents at random and serves each as soon as it is made. Without a server they are only kept. a
// is nil where nothing that was made before may be used.
func (f *Feed) readAside(ctx context.Context, a *aside, wanted []want, serve server) error {
	r := &asideRead{f: f, a: a, serve: serve}
	var rest []want
	for _, w := range wanted {
		var d document
		ok := false
		if a != nil {
			d, ok = a.held(w.ordinal)
		}
		if !ok {
			rest = append(rest, w)
		} else if err := r.hand(w, d.id, d.tokens, nil); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		f.cfg.Fail.Hit("loader/aside/before")
	}
	err := r.read(ctx, rest)
	return errors.Join(err, r.bad)
}

// asideRead is one readAside.
type asideRead struct {
	f     *Feed
	a     *aside
	serve server

	mu  sync.Mutex // one document is handed on at a time
	bad error
}

func (r *asideRead) hand(w want, id millrace.SampleID, tokens []uint32, bad *millrace.Quarantine) (err error) {
	if r.serve == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad, err = gather(r.bad, r.serve(r.f.src, w, id, tokens, bad))
	return err
}

// read makes documents that are not held, those of a block together.
func (r *asideRead) read(ctx context.Context, wanted []want) error {
	if r.f.src.Global() != nil {
		walk := r.f.src.Global().Lookup()
		slots := make([]slot, len(wanted))
		for i, w := range wanted {
			_, id := walk.At(w.ordinal)
			slots[i].shard, slots[i].record = id.Shard, id.Record
		}
		return r.readSlots(ctx, wanted, slots)
	}
	for len(wanted) > 0 {
		b, err := r.find(ctx, wanted[0].ordinal)
		if err != nil {
			return err
		}
		perm, permuted := r.f.src.Blocks().Permutation(b.seekPoint, b.size.Records)
		n := 0
		var slots []slot
		for ; n < len(wanted) && uint64(wanted[n].ordinal-b.seekPoint.Ordinal) < b.size.Records; n++ {
			at := uint64(wanted[n].ordinal - b.seekPoint.Ordinal)
			if permuted {
				at = perm.At(at)
			}
			slots = append(slots, slot{shard: b.shard, record: b.seekPoint.Record + at})
		}
		if err := r.readBlock(ctx, b, wanted[:n], slots); err != nil {
			return err
		}
		wanted = wanted[n:]
	}
	return nil
}

// readSlots reads records of seekable shards, as many side by side as the feed has decoders.
func (r *asideRead) readSlots(ctx context.Context, wanted []want, slots []slot) error {
	entries := byPlace(slots)
	p := &span{slots: slots}
	lengths, err := r.f.remembered(ctx, slots)
	if err != nil {
		return err
	}
	r.f.mu.Lock()
	per := int(max(partBytes/4/max(r.f.sizes.record(), 1), 1))
	r.f.mu.Unlock()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(r.f.cfg.Parallel)
	for part := range slices.Chunk(entries, per) {
		group.Go(func() error {
			m := r.decoder(p, wanted, lengths)
			defer m.note()
			return m.readEntries(gctx, part)
		})
	}
	return group.Wait()
}

// unknown is the length of a record that nobody remembers.
const unknown = ^uint32(0)

// remembered looks up the lengths of records.
func (f *Feed) remembered(ctx context.Context, slots []slot) ([]uint32, error) {
	view := f.src.Lengths()
	defer view.Close()
	out := make([]uint32, len(slots))
	for i, s := range slots {
		known, err := view.Of(ctx, s.shard)
		if err != nil {
			return nil, err
		}
		n, ok := known.Tokens(s.record)
		if !ok {
			n = unknown
		}
		out[i] = n
	}
	return out, nil
}

// decoder makes a span that nobody keeps, and hands on each of its documents. One whose length is not the remembered
// one is bad: that is what it was offered with.
func (r *asideRead) decoder(p *span, wanted []want, lengths []uint32) *decoder {
	m := newDecoder(r.f)
	m.open(p, 0)
	m.placed = func(shard uint32, slots []uint32) error {
		for _, i := range slots {
			w, id := wanted[i], millrace.SampleID{Shard: shard, Record: p.slots[i].record}
			r.f.mu.Lock()
			q, rejected := p.rejects[i]
			r.f.mu.Unlock()
			if n := uint32(len(m.buf)); !rejected && lengths[i] != unknown && lengths[i] != n {
				q, rejected = m.quarantine(shard, m.rec, lengthChanged(lengths[i], n)), true
			}
			if rejected {
				if err := r.hand(w, id, nil, &q); err != nil {
					return err
				}
				continue
			}
			if r.a != nil {
				r.a.keep(w.ordinal, id, m.buf)
			}
			if err := r.hand(w, id, m.buf, nil); err != nil {
				return err
			}
		}
		return nil
	}
	return m
}
