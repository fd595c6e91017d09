package decode

import (
	"context"
	"errors"
	"iter"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/order"
)

// Scan reads one shard block by block, from some block on. It holds the shard and a coroutine until it is closed or
// reaches the shard's end. One goroutine at a time uses it.
//
// Invariant: between two reads, neither the scan nor its coroutine refers to a text that was returned. The text's user
// decides how long it stays in memory.
type Scan struct {
	shard  uint32
	record uint64 // first record of the next block
	wanted Wanted // of the block that is being read
	text   *Text  // of the block just read, until Read returns it
	err    error  // likewise
	next   func() (struct{}, bool)
	stop   func()
}

// NewScan returns a scan from the block that begins at a record. It opens nothing.
func NewScan(shard uint32, record uint64) *Scan { return &Scan{shard: shard, record: record} }

// IsAt reports whether the scan continues at a record. A nil scan does not.
func (s *Scan) IsAt(shard uint32, record uint64) bool {
	return s != nil && s.shard == shard && s.record == record
}

// Read returns the wanted part of the next block, or nil at the shard's end. All calls get contexts of one run. The
// caller then calls Pass.
func (s *Scan) Read(ctx context.Context, src *sources.Source, store Store, large *budget.Large,
	wanted Wanted) (*Text, error) {
	s.wanted = wanted
	if s.next == nil {
		room := &scanRoom{large: large, limit: src.SampleBytes()}
		s.next, s.stop = iter.Pull(s.blocks(room.asked(ctx), src, store, room.leave))
	}
	a := src.BeginDecode(s.shard)
	s.next()
	a.End(0)
	text, err := s.text, s.err
	s.text, s.err = nil, nil
	return text, err
}

// Pass moves the scan's position behind a text that Read returned; nil changes nothing.
func (s *Scan) Pass(text *Text) {
	if text != nil {
		s.record = text.first + text.Records()
	}
}

// Close ends the scan. It may be nil, and may be closed already.
func (s *Scan) Close() {
	if s != nil && s.stop != nil {
		s.stop()
	}
}

// errEnough ends the scan of a shard after Close.
var errEnough = errors.New("the scan was closed")

// blocks sets text to one block after another and yields after each but the last. So a shard that was read to its end
// is free at once. Nothing follows an error.
func (s *Scan) blocks(ctx context.Context, src *sources.Source, store Store, leave func()) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		defer leave()
		o, err := src.Acquire(ctx, s.shard)
		if err != nil {
			s.err = err
			return
		}
		defer src.Release(o)
		cut := order.Cutter{Limit: src.Blocks().Limit}
		from, tokens := s.record, src.HoldsTokens()
		text := &Text{first: from, tokens: tokens, wanted: s.wanted}
		number := from
		take := func(r sources.Record) error {
			if r.Number != number {
				return millrace.Errorf(millrace.ErrDamaged, "scan %s: record %d came in place of %d",
					o.Path(), r.Number, number)
			}
			if err := o.HostFailure(&r); err != nil {
				return err
			}
			if cut.Cuts(r.Raw) {
				leave() // the next read may be long after this one
				text.finish(store)
				s.text, text = text, &Text{first: number, tokens: tokens}
				if !yield(struct{}{}) {
					return errEnough
				}
				text.wanted = s.wanted
			}
			text.add(&r, store)
			leave()
			number++
			return ctx.Err()
		}
		what := func() string { return src.SampleName(s.shard, number) }
		err = sources.Fence(millrace.ErrDamaged, what, func() error { return o.Scan(ctx, from, take) })
		switch {
		case err == errEnough:
			text.Recycle(store)
		case err != nil:
			text.Recycle(store)
			s.err = o.Explain(err)
		case text.Records() > 0:
			text.finish(store)
			text.last, s.text = true, text
		}
	}
}

// scanRoom is the room for a large record of a scan.
type scanRoom struct {
	large *budget.Large
	limit int64
	give  func() // nil: no room is taken
}

// asked returns a context in which the records of a scan ask for room.
func (r *scanRoom) asked(ctx context.Context) context.Context {
	return sources.WithRoom(ctx, func(bytes int64) (err error) {
		if r.give == nil {
			r.give, err = r.large.Take(ctx, bytes, r.limit)
		}
		return err
	})
}

// leave gives the room back.
func (r *scanRoom) leave() {
	if r.give != nil {
		r.give()
		r.give = nil
	}
}
