package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/feed/decode"
	"millrace/sources/read/feed/recent"
	"millrace/sources/read/order"
)

// wanted is a document to be read at random, with the indexes of its requests.
type wanted struct {
	ordinal millrace.Ordinal
	reqs    []int
}

// byDocument groups requests that are sorted by ordinal.
func byDocument(reqs []Request, byOrdinal []int) (out []wanted) {
	for len(byOrdinal) > 0 {
		n := 1
		for n < len(byOrdinal) && reqs[byOrdinal[n]].Ordinal == reqs[byOrdinal[0]].Ordinal {
			n++
		}
		out = append(out, wanted{reqs[byOrdinal[0]].Ordinal, byOrdinal[:n:n]})
		byOrdinal = byOrdinal[n:]
	}
	return out
}

// server passes an ordinal's document, or the reason why there is none, to its requests. The document's tokens are
// valid until it returns.
type server func(s *sources.Source, w wanted, d recent.Document, bad *millrace.Quarantine) error

// serving returns the server of requests.
func serving(reqs []Request, emit Emit) server {
	return func(s *sources.Source, w wanted, d recent.Document, bad *millrace.Quarantine) error {
		at, tokens := d.Place, d.Tokens
		for _, i := range w.reqs {
			r := reqs[i]
			end := uint64(at.Offset) + uint64(len(tokens))
			if piece := s.PieceTokens(); piece > 0 { // the next piece's first token may follow
				end = uint64(at.Offset) + uint64(min(piece, uint32(len(tokens))))
			}
			until := uint64(r.Offset) + uint64(r.Length)
			if bad == nil && (r.Offset < at.Offset || until > end) {
				reason := fmt.Sprintf(
					"tokens %d to %d are requested, and it has %d to %d: the file or the length store changed",
					r.Offset, until, at.Offset, end)
				name := s.SampleName(at.Shard, at.Record)
				bad = &millrace.Quarantine{Source: s.Name(), ID: name, Offset: -1, Reason: reason}
			}
			if bad != nil && until > 0 {
				return &SampleError{Ordinal: r.Ordinal, Quarantine: *bad}
			}
			from, to := within(len(tokens), at.Offset, r)
			if err := emit(i, tokens[from:to], d.Fields); err != nil {
				return err
			}
		}
		return nil
	}
}

// errPastEnd is the error of an ordinal behind the end of a block order's stream.
var errPastEnd = errors.New("the stream has ended")

// errPassed is the error of an ordinal that a standby's cursor has passed. In block orders only later blocks can be
// found.
var errPassed = errors.New("it was released")

// randomRead is one read of documents outside the read-ahead. It takes no lock.
type randomRead struct {
	src         *sources.Source
	cfg         Config
	recordBytes int64 // estimated size of a document
	serve       server
	seekPoint   func(millrace.Ordinal) millrace.SeekPoint // for block orders
	keep        func(millrace.Ordinal, recent.Document)   // gets each document that was made; nil keeps none
	recent      *recent.Store                             // of the process; nil keeps nothing
	texts       turn                                      // of the feed: readers of a block wait for the first one

	turn turn // one document is served at a time
	bad  error
}

// pass serves one document.
func (r *randomRead) pass(w wanted, d recent.Document, bad *millrace.Quarantine) error {
	r.turn.take()
	defer r.turn.pass()
	var err error
	r.bad, err = separate(r.bad, r.serve(r.src, w, d, bad))
	return err
}

// passOutside is pass from a decoder. Others may decode while a slow receiver takes the document.
func (r *randomRead) passOutside(w wanted, d recent.Document, bad *millrace.Quarantine) error {
	r.cfg.Pool.EndRead()
	defer r.cfg.Pool.ResumeRead()
	return r.pass(w, d, bad)
}

// passRemoved passes a document of a file that was removed.
func (r *randomRead) passRemoved(w wanted) error {
	bad := &millrace.Quarantine{Source: r.src.Name(), ID: fmt.Sprintf("ordinal %s", w.ordinal), Offset: -1,
		Reason: "its file was removed from the source"}
	return r.pass(w, recent.Document{}, bad)
}

// read makes documents, the documents of one block together.
func (r *randomRead) read(ctx context.Context, documents []wanted) error {
	if r.src.Global() != nil {
		walk := r.src.Global().Lookup()
		slots := make([]decode.Slot, 0, len(documents))
		there := make([]wanted, 0, len(documents))
		for _, w := range documents {
			_, at := walk.At(w.ordinal)
			if at.Shard == millrace.RemovedShard {
				if err := r.passRemoved(w); err != nil {
					return err
				}
				continue
			}
			slots = append(slots, decode.Slot{Shard: at.Shard, Record: at.Record, Start: at.Offset})
			there = append(there, w)
		}
		return r.readSlots(ctx, there, slots)
	}
	for len(documents) > 0 {
		b, err := r.find(ctx, documents[0].ordinal)
		if err != nil {
			return err
		}
		records := b.order(r.src)
		n := 0
		var slots []decode.Slot
		for ; n < len(documents) && uint64(documents[n].ordinal-b.seekPoint.Ordinal) < b.size.Records; n++ {
			if b.isRemoved() {
				if err := r.passRemoved(documents[n]); err != nil {
					return err
				}
				continue
			}
			slots = append(slots, records.slot(documents[n].ordinal))
		}
		if b.isRemoved() {
			documents = documents[n:]
			continue
		}
		if err := r.readBlock(ctx, b, documents[:n], slots); err != nil {
			return err
		}
		documents = documents[n:]
	}
	return nil
}

// readSlots reads records of seekable shards. Parts are read side by side while the pool allows more random reads.
func (r *randomRead) readSlots(ctx context.Context, documents []wanted, slots []decode.Slot) error {
	entries := decode.InFileOrder(slots, nil)
	lengths, err := r.lookUpLengths(ctx, slots)
	if err != nil {
		return err
	}
	per := int(max(partBytes/4/max(r.recordBytes, 1), 1))
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	group, gctx := errgroup.WithContext(inner)
	read := func(part []decode.Entry) error {
		d := r.decoder(documents, slots, lengths)
		defer r.finish(d)
		return d.ReadEntries(gctx, part)
	}
	for part := range slices.Chunk(entries, per) {
		if len(part) < len(entries) && r.cfg.Pool.TryRead() {
			group.Go(func() error {
				defer r.cfg.Pool.EndRead()
				return read(part)
			})
			continue
		}
		if err = r.cfg.Pool.BeginRead(ctx); err == nil {
			err = read(part)
			r.cfg.Pool.EndRead()
		}
		if err != nil {
			cancel()
			break
		}
	}
	return cmp.Or(err, group.Wait())
}

// finish gives back a decoder after its part.
func (r *randomRead) finish(d *decode.Decoder) {
	d.Finish()
	r.cfg.Pool.Return(d)
}

// lookUpLengths returns the lengths of records, as far as they are known.
func (r *randomRead) lookUpLengths(ctx context.Context, slots []decode.Slot) ([]uint32, error) {
	view := r.src.Lengths()
	defer view.Close()
	out := make([]uint32, len(slots))
	for i, s := range slots {
		known, err := view.Of(ctx, s.Shard)
		if err != nil {
			return nil, err
		}
		n, ok := known.Tokens(s.Record)
		if !ok {
			n = decode.Unknown
		}
		out[i] = n
	}
	return out, nil
}

// decoder returns a decoder that serves and keeps each document. A document whose length is not the known one is bad,
// because it was offered with that length.
func (r *randomRead) decoder(documents []wanted, slots []decode.Slot, lengths []uint32) *decode.Decoder {
	d := r.cfg.Pool.Borrow()
	d.Begin(r.src, decode.Part{
		Slots:   slots,
		Lengths: lengths,
		Serve: func(i uint32, tokens []uint32, fields string, bad *millrace.Quarantine) error {
			w, s := documents[i], &slots[i]
			at := order.Place{SampleID: millrace.SampleID{Shard: s.Shard, Record: s.Record}, Offset: s.Start}
			made := recent.Document{Place: at, Tokens: tokens, Fields: fields}
			if bad == nil && r.keep != nil && r.recent.Keeps(len(tokens)) {
				r.keep(w.ordinal, made)
			}
			return r.passOutside(w, made, bad)
		},
	})
	return d
}

// find returns the block that holds an ordinal, with its text if it has just been read: the caller recycles it. The
// search begins at the newest seek point, and reads unknown blocks for their size.
func (r *randomRead) find(ctx context.Context, n millrace.Ordinal) (*block, error) {
	at := r.seekPoint(n)
	if at.Ordinal > n {
		return nil, millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: %w (all below %d)",
			r.src.Name(), n, errPassed, at.Ordinal)
	}
	var scan *decode.Scan
	defer func() { scan.Close() }()
	for {
		var text *decode.Text
		if r.src.Blocks().Ends(at) {
			return nil, millrace.Errorf(millrace.ErrInvalid, "fetch %s ordinal %d: the stream ends at %d: %w",
				r.src.Name(), n, at.Ordinal, errPastEnd)
		}
		shard, size, known, over := r.src.BlockAt(at)
		if !known && !over {
			if !scan.IsAt(shard, at.Record) {
				scan.Close()
				scan = decode.NewScan(shard, at.Record)
			}
			var err error
			if text, err = r.scanOn(ctx, scan); err != nil {
				return nil, err
			}
			if over = text == nil; !over {
				size = order.BlockSize{Records: text.Records(), Raw: text.Raw()}
				if err := addBlock(r.src, at, shard, text); err != nil {
					r.discard(text)
					return nil, err
				}
				text = r.setText(at, text)
			}
		}
		if over {
			var err error
			if at, err = shardAfter(r.src, shard, at); err != nil {
				return nil, err
			}
			continue
		}
		next := order.AfterBlock(at, size.Records)
		if n < next.Ordinal {
			return &block{seekPoint: at, shard: shard, size: size, text: text}, nil
		}
		r.discard(text)
		at = next
	}
}

// scanOn reads the next block of a scan. Many standbys begin at once, so it takes a place among the random reads.
func (r *randomRead) scanOn(ctx context.Context, scan *decode.Scan) (*decode.Text, error) {
	if err := r.cfg.Pool.BeginRead(ctx); err != nil {
		return nil, err
	}
	defer r.cfg.Pool.EndRead()
	text, err := scan.Read(ctx, r.src, r.cfg.Pool.Store(), r.cfg.Pool.Large(), decode.Wanted{Most: r.mostText()})
	scan.Pass(text)
	return text, err
}

// mostText returns the memory that a text may take if it finds no room in the file: a quarter of the budget's limit for
// all random reads.
func (r *randomRead) mostText() int64 {
	return max(r.cfg.Budget.Limit()/int64(4*r.cfg.Pool.Size()), decode.Least)
}

// readBlock makes documents of one block: record by record if the shard allows it, otherwise from the block's text. It
// recycles the text.
func (r *randomRead) readBlock(ctx context.Context, b *block, documents []wanted, slots []decode.Slot) error {
	defer func() { r.discard(b.text) }()
	o, err := r.src.Acquire(ctx, b.shard)
	if err != nil {
		return err
	}
	_, counted := o.Count() // block orders need no index
	seekable := counted && o.Seekable()
	r.src.Release(o)
	if seekable {
		return r.readSlots(ctx, documents, slots)
	}
	if err := r.cfg.Pool.BeginRead(ctx); err != nil {
		return err
	}
	defer r.cfg.Pool.EndRead()
	whole, err := r.readText(ctx, b, nil)
	if err != nil {
		return err
	}
	if whole {
		return r.makeFrom(ctx, b, documents, slots)
	}
	for each := b.size.Raw/b.size.Records + 1; len(slots) > 0; {
		n := min(max(int(uint64(r.mostText())/each), 1), len(slots))
		if _, err := r.readText(ctx, b, slots[:n]); err != nil {
			return err
		}
		if err := r.makeFrom(ctx, b, documents[:n], slots[:n]); err != nil {
			return err
		}
		documents, slots = documents[n:], slots[n:]
	}
	return nil
}

// makeFrom makes documents from the text of their block.
func (r *randomRead) makeFrom(ctx context.Context, b *block, documents []wanted, slots []decode.Slot) error {
	lengths, err := r.lookUpLengths(ctx, slots)
	if err != nil {
		return err
	}
	d := r.decoder(documents, slots, lengths)
	defer r.finish(d)
	return d.MakeText(ctx, b.text, r.cfg.Pool.Store())
}

// readText replaces a block's text: by the whole text, or by the text of some slots only. A whole text that find has
// just read, or that recent holds, is not read again. ok is false if the text is too large for the file and for memory:
// then it is read in parts.
func (r *randomRead) readText(ctx context.Context, b *block, some []decode.Slot) (ok bool, err error) {
	r.texts.take()
	defer r.texts.pass()
	if some == nil && b.text == nil && r.recent != nil {
		b.text = r.recent.TextOf(r.src, b.seekPoint)
	}
	if some == nil && b.text != nil {
		return true, nil
	}
	r.discard(b.text)
	b.text = nil
	wish := decode.Wanted{Most: r.mostText()}
	if some != nil {
		records := make(map[uint64]bool, len(some))
		for _, s := range some {
			records[s.Record] = true
		}
		wish.Only = func(record uint64) bool { return records[record] }
	} else if r.cfg.Pool.Store().Memory(int64(b.size.Raw)) > wish.Most {
		return false, nil
	}
	scan := decode.NewScan(b.shard, b.seekPoint.Record)
	defer scan.Close()
	b.text, err = scan.Read(ctx, r.src, r.cfg.Pool.Store(), r.cfg.Pool.Large(), wish)
	if err != nil {
		return false, err
	}
	if b.text == nil || b.text.Records() != b.size.Records {
		return false, blockChanged(r.src, b)
	}
	if some == nil {
		b.text = r.setText(b.seekPoint, b.text)
	}
	return b.text != nil, nil
}

// discard ends the use of a text; nil has none.
func (r *randomRead) discard(text *decode.Text) {
	if text != nil {
		text.Recycle(r.cfg.Pool.Store())
	}
}

// setText keeps the text of a block as the last one, and returns it. A text that let its records go is none.
func (r *randomRead) setText(of millrace.SeekPoint, text *decode.Text) *decode.Text {
	if text.IsHollow() {
		r.discard(text)
		return nil
	}
	if r.recent != nil {
		r.recent.SetText(r.src, of, text)
	}
	return text
}
