// Package parquet reads a string or binary column, and further columns, of Parquet files.
//
// A record is a row. A page is the unit of memory and of random access, for row groups of any size. Pages are found by
// their headers and decoded here. No memory is allocated before a header's numbers are checked. A null, or text that is
// not UTF-8, costs its row. A page that cannot be decoded is damage to the file.
package parquet

import (
	"context"
	"errors"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// Format opens Parquet files.
type Format struct {
	// Pages keeps decoded pages of random reads for later ones. Sources may share it; nil: none are kept.
	Pages *Pages
}

var _ sources.Format = Format{}

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "parquet" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open reads the footer. There is no index to keep: the footer has the counts, and page headers lead to the pages.
func (pf Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	_ []byte) (sources.Shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	meta, end, err := readFooter(f)
	if err != nil {
		return nil, err
	}
	s := &shard{f: f, isFar: isFar(f), rows: uint64(meta.NumRows), limit: lim.SampleBytes, pages: pf.Pages}
	root, err := treeOf(f, meta)
	if err != nil {
		return nil, err
	}
	s.names = root.keys
	if err := s.openColumns(meta, root, field, end); err != nil {
		return nil, err
	}
	return s, nil
}

// openColumns opens the columns that the source needs. Some of them the file may lack.
func (s *shard) openColumns(meta *format.FileMetaData, root *node, field sources.Field, end int64) error {
	if field.Text != "" {
		text, err := findText(s.f, root, field.Text)
		if err == nil {
			s.text, err = openColumn(s.f, meta, text, end)
		}
		if s.lackText, err = field.Lack(err); err != nil {
			return err
		}
		s.lacks.Note(s.lackText)
	}
	for i, name := range field.Others {
		o, err := openOther(s.f, meta, root, name, end)
		lack, err := field.Lack(err)
		if err != nil {
			return err
		}
		if lack != nil {
			o = &other{missing: lack.Value(i < field.Needed)}
			s.lacks.Note(lack)
		}
		s.others = append(s.others, o)
	}
	return nil
}

// shard is one open file.
type shard struct {
	f      sources.File
	isFar  bool // the file fetches bytes before they are read
	rows   uint64
	limit  int64       // most bytes of a text, and of a further column in a row
	text   *columnData // nil: the source needs no text
	others []*other    // the further columns
	names  []string    // of all columns

	lackText *sources.LackError // the file lacks the column of the text
	lacks    sources.Lacks

	pages *Pages // readers with the pages that they decoded last; nil: none are kept
}

// Count implements sources.Shard.
func (s *shard) Count() (uint64, bool) { return s.rows, true }

// Lacks implements sources.Lacking.
func (s *shard) Lacks() sources.Lacks { return s.lacks }

// FieldNames implements sources.Named.
func (s *shard) FieldNames(context.Context) ([]string, error) { return s.names, nil }

// Abilities implements sources.Shard.
func (s *shard) Abilities() sources.Abilities {
	return sources.Abilities{Lacks: s, Names: s, Grains: s, Memory: s}
}

// Seekable implements sources.Shard.
func (s *shard) Seekable() bool { return true }

// Grain implements sources.Grainer.
func (s *shard) Grain() (int64, error) {
	switch {
	case s.text != nil:
		return s.text.grain()
	case len(s.others) > 0 && s.others[0].place != nil:
		return s.others[0].leaves[0].grain()
	}
	return 0, nil
}

// Memory implements sources.Sized. The decoded pages belong to the readers.
func (s *shard) Memory() int64 {
	n := int64(1 << 10)
	if s.text != nil {
		n += s.text.memory()
	}
	for _, o := range s.others {
		for _, leaf := range o.leaves {
			n += leaf.memory()
		}
	}
	return n
}

// Index implements sources.Shard. The footer takes the place of an index.
func (s *shard) Index(ctx context.Context, _ func(int64)) ([]byte, error) { return nil, ctx.Err() }

// Close implements io.Closer. The caller of Open closes the file.
func (s *shard) Close() error {
	s.pages.forget(s)
	return nil
}

// Scan implements sources.Shard.
func (s *shard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	r := s.newRowReader()
	defer r.close()
	for ; from < s.rows; from++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := r.emit(from, fn); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Read implements sources.Shard. Numbers ascend, so a call decodes each page once. It does not decode the last page of
// an earlier call again. Of a page that was decoded before, it unpacks only the pieces with the rows if these are few.
func (s *shard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	r := s.pages.take(s)
	r.prepare(ctx, numbers)
	err := r.read(ctx, numbers, fn)
	r.columns((*reader).leave)
	if err == nil {
		s.pages.give(r)
	}
	return err
}

func (r *rowReader) read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	s := r.shard
	for i, n := range numbers {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.expect(numbers[i:])
		if n >= s.rows {
			return millrace.Errorf(millrace.ErrInvalid, "read record %d of %s: it has %d", n, s.f.Name(), s.rows)
		}
		if err := r.emit(n, fn); err != nil {
			return err
		}
	}
	return nil
}

// rowReader reads rows of the text and of the further columns. It is not safe for concurrent use.
type rowReader struct {
	shard  *shard
	text   *reader // nil: the source needs no text
	others []*otherReader
	row    []any // values of others in the last row
	size   int64 // bytes of memory when it was given back
}

func (s *shard) newRowReader() *rowReader {
	r := &rowReader{shard: s, row: make([]any, len(s.others))}
	if s.text != nil {
		r.text = newReader(s.text)
	}
	for _, o := range s.others {
		r.others = append(r.others, o.newReader())
	}
	return r
}

// columns passes the readers of all columns to act.
func (r *rowReader) columns(act func(*reader)) {
	if r.text != nil {
		act(r.text)
	}
	for _, o := range r.others {
		if o.flat != nil {
			act(o.flat)
		}
		for _, l := range o.leaves {
			act(l.reader)
		}
	}
}

// expect announces to the columns the rows that the caller reads next.
func (r *rowReader) expect(rows []uint64) { r.columns(func(c *reader) { c.ahead = rows }) }

func (r *rowReader) close() { r.columns((*reader).close) }

// emit passes one row to fn.
func (r *rowReader) emit(n uint64, fn func(sources.Record) error) error {
	rec := sources.Record{Number: n, Offset: -1}
	switch {
	case r.text != nil:
		v, err := r.text.valueOf(n)
		if err != nil {
			return err
		}
		r.shard.setText(&rec, v)
	case r.shard.lackText != nil:
		rec.Raw, rec.Err = lengthBytes, r.shard.lackText.Missing()
	}
	isWhole := rec.Err == nil || isMissing(rec.Err)
	for i, o := range r.others {
		v, size, err := o.valueOf(n, r.shard.limit)
		if err != nil && !errors.Is(err, millrace.ErrBadSample) {
			return err
		}
		if r.text == nil && r.shard.lackText == nil {
			rec.Raw += lengthBytes + size
		}
		if r.row[i] = v; err != nil && isWhole {
			rec.Text, rec.Err, isWhole = nil, err, false
		}
	}
	if isWhole && len(r.others) > 0 {
		rec.Others = r.row
	}
	return fn(rec)
}

func isMissing(err error) bool {
	var missing *sources.MissingError
	return errors.As(err, &missing)
}

// lengthBytes is the size of a text's length in the plain encoding.
const lengthBytes = 4

// setText sets the text of a record to a value. It aliases the page.
func (s *shard) setText(r *sources.Record, v []byte) {
	r.Raw = lengthBytes + int64(len(v))
	if t := s.text.col.typ; t.Kind == values.JSON || t.Kind == values.Null {
		if v, r.Err = t.TextOf(v); r.Err != nil {
			return
		}
	}
	switch {
	case v == nil:
		r.Err = s.text.col.missing()
	case int64(len(v)) > s.limit:
		r.Err = millrace.Errorf(millrace.ErrBadSample, "the text is longer than sample_bytes, %d", s.limit)
	case !valid.UTF8(v):
		r.Err = millrace.Errorf(millrace.ErrBadSample, "invalid UTF-8")
	default:
		r.Text = v
	}
}
