package feed

import (
	"context"
	"errors"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/feed/recent"
)

// The documents that Warm makes.
const (
	warmRecords = 32 // after the cursor, at most
	warmShare   = 32 // at later calls: stripe positions that the cursor moves for each document; at least one document
)

// Follow moves a standby's cursor: no ordinal below is requested any more. The seek point is the newest known one that
// is not after it.
func (f *Feed) Follow(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	f.mu.Lock()
	defer f.unlock()
	if f.ahead.memory.quota == nil && below >= f.from.Ordinal {
		f.start(Position{below, seekPoint})
	}
	if f.shelf != nil {
		f.shelf.advance(below, seekPoint)
	}
}

// Warm makes the first few documents after a standby's cursor, if the cursor has moved: about `bytes` bytes of tokens,
// and at least one document. After that, the files are open, the system's cache holds the data, and the first sample of
// a takeover is in memory.
func (f *Feed) Warm(ctx context.Context, bytes int64) error {
	f.mu.Lock()
	shelf := f.shelf
	if shelf == nil || shelf.below == shelf.warmed {
		f.unlock()
		return nil
	}
	from, was := shelf.below, shelf.warmed
	end, n := f.ahead.cursor.end, uint64(warmRecords)
	f.unlock()
	if from > was {
		n = min(n, max(uint64(from-was)/uint64(f.stripe.Of)/warmShare, 1))
	}
	var documents []wanted
	for position := f.stripe.Position(from); n > 0 && f.stripe.Ordinal(position) < end; position, n = position+1, n-1 {
		documents = append(documents, wanted{ordinal: f.stripe.Ordinal(position)})
	}
	_, err := separate(nil, f.readRandom(ctx, shelf, documents, until(bytes)))
	if err != nil && !errors.Is(err, errPastEnd) && !errors.Is(err, errPassed) && !errors.Is(err, errEnough) {
		return err
	}
	f.mu.Lock()
	defer f.unlock()
	shelf.warmed = from
	return nil
}

// errEnough ends a Warm before its last document.
var errEnough = errors.New("enough tokens are in memory")

// until returns a server that ends the reading after `bytes` bytes of tokens.
func until(bytes int64) server {
	return func(_ *sources.Source, _ wanted, d recent.Document, _ *millrace.Quarantine) error {
		if bytes -= 4 * int64(len(d.Tokens)); bytes <= 0 {
			return errEnough
		}
		return nil
	}
}

// readRandom makes documents at random and serves each as soon as it is made. The documents on the shelf are not made
// again, and new ones are put there. A nil shelf keeps nothing.
func (f *Feed) readRandom(ctx context.Context, s *shelf, documents []wanted, serve server) error {
	r := &randomRead{
		src:       f.src,
		cfg:       f.cfg,
		serve:     serve,
		turn:      newTurn(),
		texts:     newTurn(),
		seekPoint: f.seekPointBefore,
	}
	type kept struct {
		wanted
		recent.Packed
	}
	var found []kept
	rest := documents
	f.mu.Lock()
	r.recordBytes = f.ahead.sizes.recordBytes()
	if s != nil {
		rest = nil
		for _, w := range documents {
			if d, ok := s.recent.Get(s, w.ordinal); ok {
				found = append(found, kept{w, d})
			} else {
				rest = append(rest, w)
			}
		}
		r.recent, r.texts = f.cfg.Recent, f.texts
		r.keep = func(n millrace.Ordinal, d recent.Document) {
			f.mu.Lock()
			defer f.unlock()
			s.put(n, d)
		}
	}
	f.unlock()
	var scratch []uint32
	for _, k := range found {
		d := k.Document(scratch[:0])
		scratch = d.Tokens
		if err := r.pass(k.wanted, d, nil); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		f.cfg.Fail.Hit("loader/aside/before")
	}
	err := r.read(ctx, rest)
	return errors.Join(err, r.bad)
}

// seekPointBefore returns the newest known seek point at which a search for an ordinal can begin.
func (f *Feed) seekPointBefore(n millrace.Ordinal) millrace.SeekPoint {
	f.mu.Lock()
	defer f.unlock()
	at := f.from.SeekPoint
	for _, p := range f.ahead.queue.spans {
		if p.block != nil && p.block.seekPoint.Ordinal <= n {
			at = p.block.seekPoint
		}
	}
	if s := f.shelf; s != nil && s.seekPoint.Ordinal >= at.Ordinal && s.seekPoint.Ordinal <= n {
		at = s.seekPoint
	}
	return at
}
