package mds

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/valid"
)

// decoder takes the values that a source needs out of samples.
type decoder struct {
	config *config
	wants  *wants
	places [][2]int // of each column's bytes in the sample
	row    []any
	line   *line // nil: samples are those of an MDS shard
}

var (
	_ extents.Decoder = (*decoder)(nil)
	_ extents.Values  = (*decoder)(nil)
)

func newDecoder(c *config, w *wants) *decoder {
	return &decoder{config: c, wants: w, places: make([][2]int, len(c.Names)), row: make([]any, len(w.others))}
}

// Decode implements extents.Decoder.
func (d *decoder) Decode(r *sources.Record, w *extents.Window, start, end int64) error {
	b, err := w.Fetch(start, end, end)
	if err == nil {
		d.fill(r, b)
	}
	return err
}

// fill sets the content of a record, or Err.
func (d *decoder) fill(r *sources.Record, b []byte) {
	if r.Err = d.locate(b); r.Err != nil {
		return
	}
	extents.Fill(r, d, d.wants.hasText, d.row, b)
}

// Other implements extents.Values.
func (d *decoder) Other(i int, b []byte) (any, error) { return d.value(&d.wants.others[i], b) }

// locate finds the bytes of each column: the sizes of those that have no fixed size come first.
func (d *decoder) locate(b []byte) error {
	if d.line != nil {
		return d.line.locate(d.config, b, d.places)
	}
	at := 0
	for _, size := range d.config.Sizes {
		if size == nil {
			at += 4
		}
	}
	if at > len(b) {
		return bad("its %d bytes end inside the sizes of its columns", len(b))
	}
	sizes := b[:at]
	for i, fixed := range d.config.Sizes {
		var size int64
		if fixed != nil {
			size = *fixed
		} else {
			size = int64(binary.LittleEndian.Uint32(sizes))
			sizes = sizes[4:]
		}
		if size > int64(len(b)-at) {
			return bad("column %q has %d bytes, and the sample has %d more", d.config.Names[i], size, len(b)-at)
		}
		d.places[i] = [2]int{at, at + int(size)}
		at += int(size)
	}
	if at != len(b) {
		return bad("its columns end at byte %d of %d", at, len(b))
	}
	return nil
}

// line divides the samples of a shard of lines.
type line struct {
	newline, separator []byte
	isObject           bool // samples are JSON objects
}

// locate finds the bytes of each column of a sample. An object is the value of the first one.
func (l *line) locate(c *config, b []byte, places [][2]int) error {
	rest, ok := bytes.CutSuffix(b, l.newline)
	if !ok {
		return bad("it does not end with the newline %q", l.newline)
	}
	if l.isObject {
		places[0] = [2]int{0, len(rest)}
		return nil
	}
	if n := bytes.Count(rest, l.separator) + 1; n != len(places) {
		return bad("it has %d values, and the shard has %d columns", n, len(places))
	}
	at := 0
	for i := range places {
		n := bytes.Index(rest[at:], l.separator)
		if n < 0 {
			n = len(rest) - at
		}
		places[i] = [2]int{at, at + n}
		at += n + len(l.separator)
	}
	return nil
}

// Text implements extents.Values. It returns the document's text, or the reason why the sample has none.
func (d *decoder) Text(b []byte) (text []byte, missing, err error) {
	w := &d.wants.text
	if w.inside == nil && w.kind != object {
		place := d.places[w.column]
		text = b[place[0]:place[1]]
	} else {
		v, err := d.value(w, b)
		if err != nil {
			return nil, nil, err
		}
		s, ok := v.(string)
		if v == nil {
			return nil, sources.NewMissingError(w.path, sources.Null, nil), nil
		}
		if !ok {
			return nil, nil, bad("field %q is not a text", w.path)
		}
		text = []byte(s)
	}
	if !valid.UTF8(text) {
		return nil, nil, bad("field %q is not valid UTF-8", w.path)
	}
	return text, nil, nil
}

func bad(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrBadSample, "%s", fmt.Sprintf(format, args...))
}
