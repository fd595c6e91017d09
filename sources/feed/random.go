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
	"millrace/sources/feed/decode"
	"millrace/sources/feed/recent"
	"millrace/sources/order"
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

// read makes documents, the documents of one block together.
func (r *randomRead) read(ctx context.Context, documents []wanted) error {
	if r.src.Global() != nil {
		walk := r.src.Global().Lookup()
		slots := make([]decode.Slot, len(documents))
		for i, w := range documents {
			_, at := walk.At(w.ordinal)
			slots[i] = decode.Slot{Shard: at.Shard, Record: at.Record, Start: at.Offset}
		}
		return r.readSlots(ctx, documents, slots)
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
			slots = append(slots, records.slot(documents[n].ordinal))
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
	entries := decode.InFileOrder(slots)
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
		shard := r.src.Blocks().ShardAt(at.Epoch, at.Shard)
		size, known, over := r.src.BlockSize(shard, at.Block)
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
				r.setText(at, text)
				if err := addBlock(r.src, at, shard, text); err != nil {
					r.discard(text)
					return nil, err
				}
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
	text, err := scan.Read(ctx, r.src, r.cfg.Pool.Store(), r.cfg.Pool.Large())
	scan.Pass(text)
	return text, err
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
	if err := r.readText(ctx, b); err != nil {
		return err
	}
	lengths, err := r.lookUpLengths(ctx, slots)
	if err != nil {
		return err
	}
	d := r.decoder(documents, slots, lengths)
	defer r.finish(d)
	return d.MakeText(ctx, b.text, r.cfg.Pool.Store())
}

// readText sees to a block's text. It reads a text that find has not just read, and that is not the last one.
func (r *randomRead) readText(ctx context.Context, b *block) (err error) {
	r.texts.take()
	defer r.texts.pass()
	if b.text == nil && r.recent != nil {
		b.text = r.recent.TextOf(r.src, b.seekPoint)
	}
	if b.text != nil {
		return nil
	}
	scan := decode.NewScan(b.shard, b.seekPoint.Record)
	defer scan.Close()
	if b.text, err = scan.Read(ctx, r.src, r.cfg.Pool.Store(), r.cfg.Pool.Large()); err != nil {
		return err
	}
	if b.text == nil || b.text.Records() != b.size.Records {
		return blockChanged(r.src, b)
	}
	r.setText(b.seekPoint, b.text)
	return nil
}

// discard ends the use of a text; nil has none.
func (r *randomRead) discard(text *decode.Text) {
	if text != nil {
		text.Recycle(r.cfg.Pool.Store())
	}
}

func (r *randomRead) setText(of millrace.SeekPoint, text *decode.Text) {
	if r.recent != nil {
		r.recent.SetText(r.src, of, text)
	}
}
