// Package arrow reads files of Arrow record batches: the streams that Hugging Face datasets writes (save_to_disk and
// cache directories), and the file format (Feather version 2).
//
// A record is a row. Opening a file follows the heads of its messages, so rows are read at random without an index. Of
// a column only the parts with the wanted rows are read. A compressed buffer is unpacked as a whole. Numbers that the
// file declares are checked before memory is allocated for them. A null, or text that is not UTF-8, costs its row.
// Offsets that point outside of their buffer are damage to the file.
//
// See https://arrow.apache.org/docs/format/Columnar.html.
package arrow

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/parts/valid"
)

// Format opens Arrow files.
type Format struct{}

var _ sources.Format = Format{}

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "arrow" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open reads the heads of all messages. There is no index to keep.
func (Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	_ []byte) (sources.Shard, error) {
	x, err := readLayout(ctx, f)
	if err != nil {
		return nil, err
	}
	s := &shard{f: f, layout: x, limit: lim.SampleBytes}
	if field.Text != "" {
		c, err := x.column(f.Name(), field.Text)
		if s.lackText, err = field.Lack(err); err != nil {
			return nil, err
		}
		s.lacks.Note(s.lackText)
		if s.lackText == nil {
			s.hasText = true
			s.columns = append(s.columns, c)
		}
		if s.hasText && !c.at.isPlain() {
			return nil, millrace.Errorf(millrace.ErrInvalid, "%s: column %q is %v, want strings or binary", f.Name(),
				field.Text, c.at.kind)
		}
	}
	s.missing = make([]any, len(field.Others))
	for i, name := range field.Others {
		c, err := x.column(f.Name(), name)
		lack, err := field.Lack(err)
		if err != nil {
			return nil, err
		}
		if lack != nil {
			s.missing[i] = lack.Value(i < field.Needed)
			s.lacks.Note(lack)
			continue
		}
		s.places = append(s.places, i)
		s.columns = append(s.columns, c)
	}
	return s, nil
}

// column is the way from the top to a field that a source needs.
type column struct {
	name string
	way  []int
	at   *field
}

func (x *layout) column(file, name string) (c column, err error) {
	path, err := fields.Parse(name)
	if err != nil {
		return column{}, err
	}
	c.name = name
	if c.way, c.at, err = x.top.find(file, path); err != nil {
		return column{}, err
	}
	if t := c.at.unread(); t != "" {
		return column{}, millrace.Errorf(millrace.ErrInvalid, "%s: column %q has type %s, which is not read", file,
			name, t)
	}
	return c, nil
}

// shard is one open file. Only its pool changes, so its methods may be called concurrently.
type shard struct {
	f       sources.File
	layout  *layout
	limit   int64 // most bytes of a record's values
	hasText bool  // the first column is the text
	columns []column
	places  []int // of the further columns, among the values of a row
	missing []any // a row of the values of columns that the file lacks

	lackText *sources.LackError // the file lacks the column of the text
	lacks    sources.Lacks

	readers sync.Pool // of *reader, for random reads
}

var (
	_ sources.Grainer = (*shard)(nil)
	_ sources.Sized   = (*shard)(nil)
)

// FieldNames implements sources.Named.
func (s *shard) FieldNames(context.Context) (names []string, err error) {
	for _, c := range s.layout.top.children {
		names = append(names, c.name)
	}
	return names, nil
}

// Lacks implements sources.Lacking.
func (s *shard) Lacks() sources.Lacks { return s.lacks }

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) { return s.layout.rows, true }

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities {
	return sources.Abilities{Names: s, Lacks: s, Memory: s, Grains: s}
}

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Index implements sources.Shard. The heads of the messages take the place of an index.
func (s *shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error { return nil }

// Memory implements sources.Sized.
func (s *shard) Memory() int64 { return 24 * int64(cap(s.layout.batches)) }

// Grain implements sources.Grainer: the buffers of a compressed batch are unpacked as a whole.
func (s *shard) Grain() (int64, error) {
	if !s.layout.packed || len(s.layout.batches) == 0 {
		return 0, nil
	}
	return s.layout.bytes / int64(len(s.layout.batches)), nil
}

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	r := s.newReader(aheadScan)
	for ; from < s.layout.rows; from++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.emit(from, fn); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Read implements sources.Shard. Readers keep the batch and the bytes that they read last for later calls.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	r, ok := s.readers.Get().(*reader)
	if !ok {
		r = s.newReader(aheadAlone)
	}
	for _, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		if n >= s.layout.rows {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.f.Name(),
				s.layout.rows)
		}
		if err := r.emit(n, fn); err != nil {
			return err
		}
	}
	s.readers.Put(r)
	return nil
}

// reader reads rows of the columns of a shard, one batch after another. It is not safe for concurrent use.
type reader struct {
	shard    *shard
	ahead    int64
	messages messages
	batch    int     // -1 before the first
	columns  []*view // the last part of each column's way
	ways     [][]*view
	row      []any
	dicts    map[int64]*dictionary
}

// dictionary is the memory of the views of a dictionary's parts, while the same parts hold.
type dictionary struct {
	parts []place
	views []*view
}

func (s *shard) newReader(ahead int64) *reader {
	n := len(s.columns)
	r := &reader{shard: s, ahead: ahead, messages: messages{f: s.f, end: s.layout.end}, batch: -1,
		columns: make([]*view, n), ways: make([][]*view, n)}
	r.row = slices.Clone(s.missing)
	return r
}

// emit passes one row to fn.
func (r *reader) emit(row uint64, fn func(sources.Record) error) error {
	s := r.shard
	all := s.layout.batches
	k := sort.Search(len(all), func(i int) bool { return all[i].first+all[i].rows > row })
	if k != r.batch {
		r.batch = -1
		if err := r.enter(k); err != nil {
			return err
		}
		r.batch = k
	}
	rec := sources.Record{Number: row, Offset: -1}
	if err := r.fill(&rec, int64(row-all[k].first)); err != nil {
		return err
	}
	return fn(rec)
}

// lengthBytes is the size of a text's offset.
const lengthBytes = 4

// fill sets the content of a record. Its error is damage to the file.
func (r *reader) fill(rec *sources.Record, i int64) error {
	s := r.shard
	first := len(r.columns) - len(s.places)
	values := reading{limit: s.limit, left: s.limit}
	for k, at := range s.places {
		v, err := values.under(r.ways[first+k], r.columns[first+k], i)
		if err != nil && !errors.Is(err, millrace.ErrBadSample) {
			return err
		}
		r.row[at], rec.Err = v, cmp.Or(rec.Err, err)
	}
	rec.Raw = s.layout.bytes / int64(max(s.layout.rows, 1))
	switch {
	case s.lackText != nil:
		rec.Raw, rec.Err = lengthBytes, cmp.Or(rec.Err, error(s.lackText.Missing()))
	case s.hasText:
		text, err := r.textOf(i)
		if err := r.setText(rec, text, err); err != nil {
			return err
		}
	}
	var missing *sources.MissingError
	if len(r.row) > 0 && (rec.Err == nil || errors.As(rec.Err, &missing)) {
		rec.Others = r.row
	}
	return nil
}

// setText sets the text of a record that is not bad yet.
func (r *reader) setText(rec *sources.Record, text []byte, err error) error {
	s := r.shard
	rec.Raw = lengthBytes + int64(len(text))
	switch {
	case err != nil && !errors.Is(err, millrace.ErrBadSample):
		return err
	case rec.Err != nil:
	case err != nil:
		rec.Err = err
	case text == nil:
		rec.Err = sources.NewMissingError(s.columns[0].name, sources.Null, s.layout.top.names())
	case int64(len(text)) > s.limit:
		rec.Err = errLong(s.limit)
	case !valid.UTF8(text):
		rec.Err = millrace.Errorf(millrace.ErrBadSample, "invalid UTF-8 in column %q", s.columns[0].name)
	default:
		rec.Text = text
	}
	return nil
}

// textOf returns the text of a row of the batch, nil if it or a struct around it is null.
func (r *reader) textOf(i int64) ([]byte, error) {
	if null, err := anyNull(r.ways[0], i); null || err != nil {
		return nil, err
	}
	text, err := r.columns[0].text(i, r.shard.limit)
	if err != nil {
		return nil, err
	}
	return r.columns[0].field.typ.TextOf(text)
}

// under returns a value, nil if a struct around it is null.
func (r *reading) under(way []*view, v *view, i int64) (any, error) {
	if null, err := anyNull(way, i); null || err != nil {
		return nil, err
	}
	return r.value(v, i)
}

// anyNull reports whether a struct on the way to a value is null.
func anyNull(way []*view, i int64) (bool, error) {
	for _, v := range way {
		if null, err := v.isNull(i); null || err != nil {
			return null, err
		}
	}
	return false, nil
}

func (f *field) names() []string {
	var names []string
	for _, c := range f.children {
		names = append(names, c.name)
	}
	return names
}
