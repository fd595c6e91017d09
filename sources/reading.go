package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"slices"
	"unicode/utf8"

	"millrace"
	"millrace/internal/activity"
	"millrace/internal/tokenid"
	"millrace/sources/facts/kept"
	"millrace/sources/find"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
	"millrace/sources/store/copies"
	"millrace/sources/values"
)

// Name returns the source's name.
func (s *Source) Name() string { return s.spec.Name }

// Manifest lists the source's shards. Callers do not change it.
func (s *Source) Manifest() *millrace.Manifest { return &s.manifest }

// Epochs returns the passes after which the stream ends, 0 if it is endless.
func (s *Source) Epochs() uint32 { return s.spec.Epochs }

// SampleName returns the sample id that users see.
func (s *Source) SampleName(shard uint32, record uint64) string {
	return s.manifest.SampleName(millrace.SampleID{Shard: shard, Record: record})
}

// Global returns the order of a source with shuffle global, else nil.
func (s *Source) Global() *order.Global { return s.global }

// PieceTokens returns the tokens of a piece if the source's ordinals are pieces of documents, 0 if they are documents.
func (s *Source) PieceTokens() uint32 {
	if s.global == nil {
		return 0
	}
	return s.global.PieceTokens()
}

// Blocks returns the order of a source that is read block by block, else nil. Exactly one of Global and Blocks is not
// nil.
func (s *Source) Blocks() *order.Blocks { return s.blocks }

// Filters returns the filters of the source, nil if there are none.
func (s *Source) Filters() *filter.Set { return s.spec.Filters }

// Log returns the source's logger.
func (s *Source) Log() *slog.Logger { return s.log }

// RecordBytes estimates the bytes of an ordinal's tokens before any record was read.
func (s *Source) RecordBytes() int64 {
	records, ok := s.records()
	if s.PieceTokens() > 0 {
		records = s.global.Total(math.MaxUint32)
	}
	if !ok || records == 0 {
		return 4 << 10
	}
	var size int64
	for _, sh := range s.manifest.Shards {
		size += sh.Size
	}
	return max(2*size/int64(records), 16)
}

// SampleBytes returns the most bytes of a record of the source.
func (s *Source) SampleBytes() int64 { return s.spec.Limits.SampleBytes }

// HoldsTokens reports whether the format's records are documents of tokens: nothing makes them.
func (s *Source) HoldsTokens() bool { return s.maker == nil }

// HasPlaces reports whether documents may be read directly from the files (Placer): they are tokens on a
// disk, and no checksum of them is kept.
func (s *Source) HasPlaces() bool {
	return s.HoldsTokens() && !s.kept.HasLengths() && !slices.ContainsFunc(s.spec.Patterns, find.IsURL)
}

// Document appends a record's tokens to dst, and notes the bytes of its text in the record. tell is called after every
// MiB of text.
func (s *Source) Document(dst []uint32, r *Record, tell func()) ([]uint32, error) {
	if s.maker == nil || r.Made {
		return append(dst, r.Tokens...), nil
	}
	needed, _ := s.spec.Field.split(r.Others)
	from := len(dst)
	var err error
	dst, r.MadeOf, err = s.maker.Document(dst, r, needed, tell)
	if ids := dst[from:]; err == nil && len(ids) > 0 && s.traits.Untrained != nil &&
		int(tokenid.CountUntrained(ids[1:])) == len(ids)-1 {
		err = s.traits.Untrained(r, needed)
	}
	return dst, err
}

// HasUntrained reports whether some tokens of the source's documents may be left out of the loss.
func (s *Source) HasUntrained() bool { return s.traits.Untrained != nil }

// Uncut returns the length up to which plans never cut a document, 0 if they may cut any.
func (s *Source) Uncut() uint32 { return s.spec.Uncut }

// Judge decides which records of a source are left out, and which of their fields go to the trainer. It is
// not safe for concurrent use.
type Judge struct {
	source  *Source
	filters *filter.Judge
}

// Judge returns a judge for one goroutine.
func (s *Source) Judge() *Judge { return &Judge{s, s.spec.Filters.Judge()} }

// Refused returns the bits of the filters that refuse a record from which a document of `tokens` tokens was made, with
// filter.TooLong if it was too long.
func (j *Judge) Refused(r *Record, tokens int) (bits uint32, err error) {
	_, others := j.source.spec.Field.split(r.Others)
	bits, err = j.filters.Refused(others, tokens, int(r.MadeOf))
	if r.TooLong {
		bits |= filter.TooLong
	}
	return bits, err
}

// LeavesOut reports whether a record without a document is left out: it has no field that the document needs, and the
// source's own filter refuses it or the source skips such records. bits then are those of its refusal.
func (j *Judge) LeavesOut(r *Record, cause error) (bits uint32, ok bool) {
	var missing *MissingError
	if j.source.spec.Filters == nil || !errors.As(cause, &missing) {
		return 0, false
	}
	_, others := j.source.spec.Field.split(r.Others)
	bits, err := j.filters.RefusedAlone(others)
	if err == nil && bits&filter.Own != 0 {
		return bits, true
	}
	return filter.Own | filter.Skipped, j.source.spec.SkipMissing
}

// Forget sets the values that only the document needs to nil, once it is made.
func (j *Judge) Forget(others []any) {
	needed, _ := j.source.spec.Field.split(others)
	clear(needed)
}

// IsReadAs reports whether another source makes the same documents of the same files, so that only the answers of
// filters, and the order, may differ. All records are counted, and the lengths of both are kept.
func (s *Source) IsReadAs(other *Source) bool {
	_, isCounted := s.records()
	a, b := &s.spec, &other.spec
	return isCounted && s.kept.HasLengths() && a.transforms() == b.transforms() && a.IndexDir == b.IndexDir &&
		a.Limits == b.Limits && a.Verify == b.Verify && a.Field.equals(b.Field) &&
		slices.Equal(s.manifest.Shards, other.manifest.Shards)
}

// With returns a view of a source whose reading finds the lengths of further sources too, which are read as it is. It
// is valid until one of them is closed.
func (s *Source) With(others []*Source) *Source {
	view := *s
	view.others = others
	return &view
}

// Others returns the further sources of With.
func (s *Source) Others() []*Source { return s.others }

// Activity returns the measures of the source's activities, nil if there are none.
func (s *Source) Activity() *activity.Source { return s.activity }

// BeginDecode begins to read and decode records of a shard. The caller ends it.
func (s *Source) BeginDecode(shard uint32) *activity.Activity {
	return s.activity.Begin(activity.Decode, s.manifest.Shards[shard].Name)
}

// Lengths returns a view of the lengths known now. The caller closes it.
func (s *Source) Lengths() *LengthView { return s.lengths.view() }

// Remember keeps newly found lengths of one shard.
func (s *Source) Remember(shard uint32, found []kept.Length) { s.kept.Remember(shard, found) }

// DocumentCheck returns a check of the source's documents.
func (s *Source) DocumentCheck() DocumentCheck { return DocumentCheck{verifier: &s.verifier} }

// Grain returns the mean bytes that the source's first shard unpacks to read one record at random, 0 if it reads a
// record alone.
func (s *Source) Grain(ctx context.Context) (int64, error) {
	if len(s.manifest.Shards) == 0 {
		return 0, nil
	}
	o, err := s.Acquire(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer s.Release(o)
	if o.copy != nil {
		return copies.FrameBytes, nil
	}
	if g := o.Abilities().Grains; g != nil {
		return g.Grain()
	}
	return 0, nil
}

// OpenAlone opens a shard's file without an index, for one scan. The caller closes the shard.
func (s *Source) OpenAlone(ctx context.Context, sh millrace.Shard, f File) (Shard, error) {
	return s.opener.constants[sh.Name].Open(ctx, s.spec.Format, f, s.spec.Field, s.spec.Limits, nil)
}

// Acquire returns an open shard of the manifest. The caller releases it.
func (s *Source) Acquire(ctx context.Context, shard uint32) (*OpenShard, error) {
	return s.shards.acquire(ctx, shard)
}

// Release ends the use of a shard that Acquire returned.
func (s *Source) Release(o *OpenShard) { s.shards.release(o) }

// BlockAt returns the shard of the block at a seek point, and the block's size if a scan found it before. end means
// that the shard has no such block. The rest of a shard that was removed is one block. Block orders only.
func (s *Source) BlockAt(at millrace.SeekPoint) (shard uint32, size order.BlockSize, known, end bool) {
	shard, removed := s.blocks.ShardAt(at.Epoch, at.Shard)
	if shard == millrace.RemovedShard {
		rest := removed - min(at.Record, removed)
		return shard, order.BlockSize{Records: rest}, rest > 0, rest == 0
	}
	size, known, end = s.tables.known(shard, at.Block)
	return shard, size, known, end
}

// AddBlock remembers the size of a block that a scan found.
func (s *Source) AddBlock(at millrace.SeekPoint, shard uint32, size order.BlockSize) {
	s.tables.found(at, shard, size)
}

// EndShard remembers that a shard has no block with this number, and stores its block table if it is complete.
func (s *Source) EndShard(shard, block uint32) error {
	if shard == millrace.RemovedShard {
		return nil
	}
	return s.tables.ended(shard, block)
}

// PassedBytes is the most that a record's passed-through fields take as JSON. A record with more is quarantined.
const PassedBytes = 4 << 10

// Passed returns the passed-through fields of a record as a JSON object with the keys in the order of the mixture file,
// "" if the source passes none. A field that the record lacks is null. The error wraps millrace.ErrBadSample.
func (j *Judge) Passed(r *Record) (string, error) {
	names := j.source.spec.Passed
	if len(names) == 0 {
		return "", nil
	}
	var values []any // none: the record has no field at all
	if at := len(j.source.spec.Field.Others) - len(names); at <= len(r.Others) {
		values = r.Others[at:]
	}
	var out bytes.Buffer
	longest, most := "", 0
	for i, name := range names {
		before := out.Len()
		if i == 0 {
			out.WriteByte('{')
		} else {
			out.WriteByte(',')
		}
		appendJSON(&out, name)
		out.WriteByte(':')
		var v any
		if i < len(values) {
			v = values[i]
		}
		appendJSON(&out, plainJSON(v))
		if n := out.Len() - before; n > most {
			longest, most = name, n
		}
	}
	out.WriteByte('}')
	if out.Len() > PassedBytes {
		return "", millrace.Errorf(millrace.ErrBadSample, "its `fields` take %d bytes, of which %q takes %d; the "+
			"limit is %d: take that field out of `fields`, or shorten it", out.Len(), longest, most, PassedBytes)
	}
	return out.String(), nil
}

// appendJSON appends a value of plainJSON as JSON.
func appendJSON(out *bytes.Buffer, v any) {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // every such value has a JSON form
	out.Truncate(out.Len() - 1)
}

// plainJSON returns a value of Record.Others with a JSON form: numbers that JSON lacks and fields that are missing are
// null, and bytes are a text.
func plainJSON(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case []byte:
		return string(bytes.ToValidUTF8(v, []byte(string(utf8.RuneError))))
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plainJSON(v[i])
		}
		return out
	case values.Object:
		out := values.Object{Keys: v.Keys, Values: make([]any, len(v.Values))}
		for i := range v.Values {
			out.Values[i] = plainJSON(v.Values[i])
		}
		return out
	case *MissingError:
		return nil
	}
	return v
}
