package text

import (
	"bytes"
	"context"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/format/parts/rows"
	"millrace/sources/values"
)

// Record is the part of a text file that is a document.
type Record string

// The records. The zero value is that of File.
const (
	File      Record = "file"
	Line      Record = "line"      // without its line end; a line of white space alone is none
	Paragraph Record = "paragraph" // lines up to one of white space alone, without white space around them
)

// openRecords opens a file of several documents.
func (ff Format) openRecords(ctx context.Context, f sources.File, field sources.Field, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	l := rows.Layout{Name: "text", Noun: string(ff.Record), Refuse: refuseUTF16,
		NewParser: func() (rows.Parser, error) {
			x, err := fields.NewReader(field)
			p := &parser{reader: x, file: f, hasOthers: len(field.Others) > 0, behind: "\r\n"}
			if ff.Record == Paragraph {
				p.behind = white
			}
			return p, err
		},
		Names: func() []string { return append([]string{"text"}, nameFields()...) }}
	if ff.Record == Paragraph {
		l.NewCutter = func(bool) rows.Cutter { return &cutter{} }
	}
	return rows.Open(ctx, f, l, ff.Windows, lim, blob)
}

// refuseUTF16 refuses a file that has no line ends of one byte.
func refuseUTF16(f sources.File, head []byte) error {
	if bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) {
		return millrace.Errorf(millrace.ErrInvalid, "read %s: the file is UTF-16; text is read as UTF-8", f.Name())
	}
	return nil
}

// parser takes the content out of lines and paragraphs.
type parser struct {
	reader    *fields.Reader
	file      sources.File
	hasOthers bool
	behind    string // characters that are cut off at the end
}

// white are the characters of a blank line.
const white = " \t\r\n"

// SetContent implements rows.Parser.
func (p *parser) SetContent(r *sources.Record, record []byte) {
	if r.Err = check(record); r.Err != nil {
		return
	}
	record = bytes.TrimPrefix(bytes.TrimRight(record, p.behind), []byte("\xef\xbb\xbf"))
	if !p.hasOthers {
		p.reader.Fill(r, values.Object{Keys: []string{"text"}, Values: []any{record}})
		return
	}
	p.reader.Fill(r, valuesOf(p.file, string(record)))
}

// cutter cuts a file into paragraphs.
type cutter struct {
	inside  bool // of a paragraph
	isBlank bool // the line has white space alone so far
}

// Cut implements rows.Cutter.
func (c *cutter) Cut(b []byte) (n int, at rows.Border, err error) {
	for i, ch := range b {
		switch {
		case !c.inside && strings.IndexByte(white, ch) < 0:
			c.inside, c.isBlank = true, false
			return i, rows.Begins, nil
		case !c.inside:
		case ch == '\n' && c.isBlank:
			c.inside = false
			return i + 1, rows.Ends, nil
		case ch == '\n':
			c.isBlank = true
		case ch != ' ' && ch != '\t' && ch != '\r':
			c.isBlank = false
		}
	}
	return len(b), rows.None, nil
}

// End implements rows.Cutter.
func (c *cutter) End() (rows.Border, error) {
	if c.inside {
		c.inside = false
		return rows.Ends, nil
	}
	return rows.None, nil
}
