// Package lengths reads files that have the lengths of documents and not the documents. A strategy can be planned from
// them before there is data.
//
// A file is CSV whose first line names its columns: tokens, and optionally patches and count. Or it has one JSON object
// with these names a line, or one number a line. count is the number of equal documents in a row. Empty lines and lines
// that begin with # are passed over. All tokens of a record are zero.
package lengths

import (
	"context"
	"slices"
	"sort"
	"sync"

	"millrace"
	"millrace/sources"
)

// Format opens files of lengths.
type Format struct{}

var (
	_ sources.Format   = Format{}
	_ sources.Lengther = (*shard)(nil)
	_ sources.Patcher  = (*shard)(nil)
	_ sources.Sized    = (*shard)(nil)
)

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "lengths" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open reads the whole file. There is no index to keep.
func (Format) Open(ctx context.Context, f sources.File, field sources.Field, _ sources.Limits,
	_ []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(field.Others) > 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"open %s: its documents have lengths and no field %s: a filter can ask for tokens alone", f.Name(),
			field.Others[0])
	}
	runs, err := read(ctx, f)
	if err != nil {
		return nil, err
	}
	return newShard(f.Name(), runs), nil
}

// run is a number of equal documents in a row.
type run struct {
	tokens, patches uint32
	end             uint64 // number of the record after the last
}

// shard is one open file. Only its zeros are made later, so its methods may be called concurrently.
type shard struct {
	name  string
	runs  []run
	zeros func() []uint32 // of the length of the longest document
}

func newShard(name string, runs []run) *shard {
	longest := uint32(0)
	for _, r := range runs {
		longest = max(longest, r.tokens)
	}
	return &shard{name: name, runs: runs, zeros: sync.OnceValue(func() []uint32 { return make([]uint32, longest) })}
}

// at returns the run of a record.
func (s *shard) at(record uint64) *run {
	return &s.runs[sort.Search(len(s.runs), func(i int) bool { return s.runs[i].end > record })]
}

func (s *shard) count() uint64 {
	if len(s.runs) == 0 {
		return 0
	}
	return s.runs[len(s.runs)-1].end
}

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) { return s.count(), true }

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities {
	return sources.Abilities{Lengths: s, Runs: s, Patches: s, Memory: s}
}

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Index implements sources.Shard. The file takes the place of an index.
func (s *shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }

// Length implements sources.Lengther.
func (s *shard) Length(record uint64) (uint32, bool) {
	if record >= s.count() {
		return 0, false
	}
	return s.at(record).tokens, true
}

// LengthRuns implements sources.RunLengther.
func (s *shard) LengthRuns(fn func(tokens uint32, records uint64) error) error {
	begin := uint64(0)
	for _, r := range s.runs {
		if err := fn(r.tokens, r.end-begin); err != nil {
			return err
		}
		begin = r.end
	}
	return nil
}

// Patches implements sources.Patcher.
func (s *shard) Patches(record uint64) uint32 {
	if record >= s.count() {
		return 0
	}
	return s.at(record).patches
}

// Memory implements sources.Sized.
func (s *shard) Memory() int64 { return 512 + 16*int64(len(s.runs)) }

// Close implements io.Closer.
func (s *shard) Close() error { return nil }

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	for n := from; n < s.count(); n++ {
		if err := s.one(ctx, n, fn); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Read implements sources.Shard.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	if i := slices.IndexFunc(numbers, func(n uint64) bool { return n >= s.count() }); i >= 0 {
		return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", numbers[i], s.name, s.count())
	}
	for _, n := range numbers {
		if err := s.one(ctx, n, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *shard) one(ctx context.Context, n uint64, fn func(sources.Record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tokens := s.at(n).tokens
	return fn(sources.Record{Number: n, Offset: -1, Raw: 4 * int64(tokens), Tokens: s.zeros()[:tokens:tokens]})
}
