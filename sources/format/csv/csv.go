// Package csv reads tables of text: CSV and TSV with a header.
//
// The first record names the columns. A field may be in quotes; inside them a quote is doubled, and a separator or a
// line break is content (RFC 4180). A record ends at LF, CR or CR LF. Empty lines are no records. Bytes behind a
// closing quote belong to the field, and a quote inside a field that does not begin with one is content, as in Python's
// csv module. Values are strings as they are written.
package csv

import (
	"bytes"
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/rows"
	"millrace/sources/format/parts/valid"
)

// Format opens CSV and TSV files.
type Format struct {
	// Windows keeps memory of random reads for later ones. Sources may share it; nil keeps none.
	Windows *rows.Windows
}

var _ sources.Format = Format{}

// Name returns the format's word in the mixture file.
func (Format) Name() string { return "csv" }

// Traits implements sources.Format.
func (Format) Traits() sources.Traits { return sources.Traits{} }

// Open reads the header.
func (ff Format) Open(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	t := &table{file: f.Name(), field: field}
	return rows.Open(ctx, f, rows.Layout{
		Name: "CSV", Noun: "record", Prepare: t.prepare, Names: func() []string { return t.names },
		Lacks:     func() sources.Lacks { return t.lacks },
		NewCutter: func(atRecord bool) rows.Cutter { return &cutter{separator: t.separator, isHeader: !atRecord} },
		NewParser: func() (rows.Parser, error) { return t.newParser(), nil },
	}, ff.Windows, lim, blob)
}

// table has the facts of a file's header.
type table struct {
	file      string
	field     sources.Field
	separator byte
	names     []string
	text      int   // column of the text, -1: none is needed
	others    []int // columns; -1: the file lacks it
	missing   []any // a row of the values of columns that the file lacks
	lackText  *sources.LackError
	lacks     sources.Lacks
}

// prepare reads the header.
func (t *table) prepare(head []byte, whole bool) error {
	head = bytes.TrimPrefix(head, []byte(mark))
	if len(head) > 1 && (head[0] == '{' || head[0] == '[') && bytes.IndexByte([]byte("\"{[ \r\n\t"), head[1]) >= 0 {
		return millrace.Errorf(millrace.ErrInvalid, "read %s: it begins as JSON and not with the names of columns; "+
			"leave `format: csv` out", t.file)
	}
	line := head
	if i := bytes.IndexAny(head, "\r\n"); i >= 0 {
		line = head[:i]
	}
	t.separator = separatorOf(t.file, line)
	c := &cutter{separator: t.separator}
	from, at, err := c.Cut(head)
	if err != nil {
		return err
	}
	if at == rows.None { // nothing but line ends
		if !whole {
			return rows.ErrShort
		}
		return millrace.Errorf(millrace.ErrDamaged, "read %s: it has no header with the names of its columns", t.file)
	}
	n, at, err := c.Cut(head[from:])
	if err == nil && at != rows.Ends {
		if !whole {
			return rows.ErrShort
		}
		_, err = c.End()
	}
	if err != nil {
		return millrace.Errorf(millrace.ErrDamaged, "read the header of %s: %w", t.file, err)
	}
	p := &parser{table: t}
	p.split(head[from : from+n])
	for _, v := range p.values {
		t.names = append(t.names, strings.TrimSpace(string(v)))
	}
	return t.find()
}

// separatorOf returns the separator that the name and the header show.
func separatorOf(file string, header []byte) byte {
	name := strings.ToLower(path.Base(file))
	for _, c := range []byte{'\t', ',', ';'} {
		if c == '\t' && strings.Contains(name, ".tsv") || bytes.IndexByte(header, c) >= 0 {
			return c
		}
	}
	return ','
}

// find finds the columns that the source needs.
func (t *table) find() error {
	t.text, t.missing, t.lacks = -1, make([]any, len(t.field.Others)), nil
	t.others = t.others[:0]
	column := func(name string) (int, error) {
		i := slices.Index(t.names, name)
		switch {
		case i < 0:
			return -1, &sources.LackError{Field: name, Names: t.names, Err: millrace.Errorf(millrace.ErrInvalid,
				"%s has no column %q; there are: %.1000s", t.file, name,
				strings.Join(t.names[:min(len(t.names), mostNamed)], ", "))}
		case slices.Contains(t.names[i+1:], name):
			return 0, millrace.Errorf(millrace.ErrInvalid, "%s has two columns %q: rename one in its header", t.file,
				name)
		}
		return i, nil
	}
	var err error
	if t.field.Text != "" {
		t.text, err = column(t.field.Text)
		if t.lackText, err = t.field.Lack(err); err != nil {
			return err
		}
		t.lacks.Note(t.lackText)
	}
	for k, name := range t.field.Others {
		i, err := column(name)
		lack, err := t.field.Lack(err)
		if err != nil {
			return err
		}
		if lack != nil {
			t.missing[k] = lack.Value(k < t.field.Needed)
			t.lacks.Note(lack)
		}
		t.others = append(t.others, i)
	}
	return nil
}

// mostNamed is the largest number of columns that an error names.
const mostNamed = 20

// mark is the byte order mark that some programs write before the header.
const mark = "\xef\xbb\xbf"

// parser cuts records into values. It is not safe for concurrent use.
type parser struct {
	table  *table
	values [][]byte
	buf    []byte
	row    []any
}

func (t *table) newParser() *parser { return &parser{table: t, row: slices.Clone(t.missing)} }

// SetContent implements rows.Parser.
func (p *parser) SetContent(r *sources.Record, record []byte) {
	t := p.table
	p.split(record)
	if len(p.values) != len(t.names) {
		r.Err = millrace.Errorf(millrace.ErrBadSample, "it has %d values, and the header has %d columns", len(p.values),
			len(t.names))
		return
	}
	if !valid.UTF8(record) {
		r.Err = millrace.Errorf(millrace.ErrBadSample, "invalid UTF-8")
		return
	}
	if t.text >= 0 {
		r.Text = p.values[t.text]
	}
	if t.lackText != nil {
		r.Err = t.lackText.Missing()
	}
	for i, k := range t.others {
		if k >= 0 {
			p.row[i] = string(p.values[k])
		}
	}
	if len(p.row) > 0 {
		r.Others = p.row
	}
}

// split cuts a record into values, without their quotes. They are valid until the next call.
func (p *parser) split(record []byte) {
	p.values, p.buf = p.values[:0], slices.Grow(p.buf[:0], len(record)+1)
	var s state
	from := 0
	for len(record) > 0 {
		run := s.run(record, p.table.separator)
		p.buf, record = append(p.buf, record[:run]...), record[run:]
		if len(record) == 0 {
			break
		}
		c := record[0]
		record = record[1:]
		switch s.take(c, p.table.separator) {
		case content:
			p.buf = append(p.buf, c)
		case nextValue:
			p.values, from = append(p.values, p.buf[from:len(p.buf):len(p.buf)]), len(p.buf)
		}
	}
	p.values = append(p.values, p.buf[from:len(p.buf):len(p.buf)])
}

var errQuote = errors.New("the file ends inside a value in quotes")
