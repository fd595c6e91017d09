package decode

import (
	"context"
	"errors"
	"iter"

	"millrace"
	"millrace/sources"
	"millrace/sources/order"
)

// Scan reads one shard block by block, from some block on. It holds the shard and a coroutine until it is closed or
// reaches the shard's end. One goroutine at a time uses it.
type Scan struct {
	shard  uint32
	record uint64 // first record of the next block
	next   func() (*Text, error, bool)
	stop   func()
}

// NewScan returns a scan from the block that begins at a record. It opens nothing.
func NewScan(shard uint32, record uint64) *Scan { return &Scan{shard: shard, record: record} }

// IsAt reports whether the scan continues at a record. A nil scan does not.
func (s *Scan) IsAt(shard uint32, record uint64) bool {
	return s != nil && s.shard == shard && s.record == record
}

// Read returns the next block, or nil at the shard's end. All calls get contexts of one run. The caller then calls
// Pass.
func (s *Scan) Read(ctx context.Context, src *sources.Source, spare Slabs) (*Text, error) {
	if s.next == nil {
		s.next, s.stop = iter.Pull2(blocks(ctx, src, s.shard, s.record, spare))
	}
	text, err, ok := s.next()
	if !ok || err != nil {
		return nil, err
	}
	return text, nil
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

// blocks yields the blocks of a shard from the one that begins at a record. Nothing follows an error.
func blocks(ctx context.Context, src *sources.Source, shard uint32, from uint64, spare Slabs) iter.Seq2[*Text, error] {
	return func(yield func(*Text, error) bool) {
		o, err := src.Acquire(ctx, shard)
		if err != nil {
			yield(nil, err)
			return
		}
		defer src.Release(o)
		cut := order.Cutter{Limit: src.Blocks().Limit}
		tokens := src.HoldsTokens()
		text := &Text{first: from, tokens: tokens}
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
				if !yield(text, nil) {
					return errEnough
				}
				text = &Text{first: number, tokens: tokens}
			}
			text.add(&r, spare)
			number++
			return ctx.Err()
		}
		what := func() string { return src.SampleName(shard, number) }
		err = sources.Fence(millrace.ErrDamaged, what, func() error { return o.Scan(ctx, from, take) })
		switch {
		case err == errEnough:
		case err != nil:
			yield(nil, o.Explain(err))
		case text.Records() > 0:
			yield(text, nil)
		}
	}
}
