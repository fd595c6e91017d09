package webdataset

import (
	"bytes"
	"fmt"
	"strings"

	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// part is a field of the group that is being read.
type part struct {
	suffix     string
	start, end int64 // of its data in the file
	isSparse   bool
	isParsed   bool
	parsed     any // of JSON
}

// decoder takes the values that a source needs out of groups. It reads all headers of a group, and the members that it
// needs.
type decoder struct {
	wants *wants
	limit int64
	hint  string // cure for a group that is none
	walk  *walk
	key   []byte
	parts []part
	words map[string]string // suffixes seen before
	taken int64             // bytes of the members that were needed
	kept  []byte            // members that no window holds
	row   []any
}

var _ extents.Decoder = (*decoder)(nil)

func newDecoder(f sources.File, w *wants, limit int64, isEnergon bool) *decoder {
	d := &decoder{wants: w, limit: limit, walk: newWalk(f, 0, 0), words: map[string]string{},
		row: make([]any, len(w.others)), hint: "the index of its groups does not fit the archive"}
	if isEnergon {
		d.hint = f.Name() + ".idx does not fit the archive: remove it, or write it again"
	}
	return d
}

// Decode implements extents.Decoder.
func (d *decoder) Decode(r *sources.Record, w *extents.Window, start, end int64) error {
	if err := d.list(r, w, start, end); err != nil || r.Err != nil {
		return err
	}
	var missing error
	var err error
	if d.wants.hasText {
		r.Text, err = d.text(w)
		missing, err = asMissing(err)
	}
	for i := range d.wants.others {
		if err == nil {
			d.row[i], err = d.value(w, &d.wants.others[i])
		}
	}
	if len(d.row) > 0 {
		r.Others = d.row
	}
	if r.Err, err = asBad(err); r.Err == nil {
		r.Err = missing
	}
	return err
}

// list finds the members of a group. Err of the record is set if they are not one group.
func (d *decoder) list(r *sources.Record, w *extents.Window, start, end int64) error {
	d.walk.window, d.walk.at, d.walk.end = w, start, end
	d.parts, d.key, d.taken, d.kept = d.parts[:0], d.key[:0], 0, d.kept[:0]
	for {
		m, ok, err := d.walk.next()
		switch {
		case err != nil && len(d.parts) == 0:
			return fmt.Errorf("%w; if the archive is whole, %s", err, d.hint)
		case err != nil:
			return err
		case !ok:
			if len(d.parts) == 0 {
				r.Err = bad("there is no member: %s", d.hint)
			}
			return nil
		case !m.isField():
			continue
		case len(d.parts) == 0:
			d.key = append(d.key, m.key()...)
		case string(d.key) != string(m.key()):
			r.Err = bad("its members have the keys %s and %s: %s", d.key, m.key(), d.hint)
			return nil
		}
		suffix := d.word(bytes.ToLower(m.suffix()))
		for i := range d.parts {
			if d.parts[i].suffix == suffix {
				r.Err = bad("sample %s has two members %q", d.key, suffix)
				return nil
			}
		}
		d.parts = append(d.parts, part{suffix: suffix, start: m.data, end: m.data + m.size, isSparse: m.isSparse})
	}
}

// mostWords bounds the suffixes that a decoder keeps.
const mostWords = 1000

// word returns a suffix as a string, without memory of its own if it was seen before.
func (d *decoder) word(suffix []byte) string {
	if s, ok := d.words[string(suffix)]; ok {
		return s
	}
	s := string(suffix)
	if len(d.words) < mostWords {
		d.words[s] = s
	}
	return s
}

// find returns the member and the path inside it of a value, or nil.
func (d *decoder) find(w *want) (*part, *way) {
	for i := range w.ways {
		for j := range d.parts {
			if d.parts[j].suffix == w.ways[i].suffix {
				return &d.parts[j], &w.ways[i]
			}
		}
	}
	return nil, nil
}

// bytes returns the data of a member, valid until the next group.
func (d *decoder) bytes(w *extents.Window, p *part) ([]byte, error) {
	if p.isSparse {
		return nil, bad(
			"member %q is a sparse file, which is not read; pack the archive again without --sparse",
			p.suffix,
		)
	}
	if d.taken += p.end - p.start; d.taken > d.limit {
		return nil, bad("the members that are needed are longer than sample_bytes, %d", d.limit)
	}
	isHeld := w.Holds(d.parts[0].start, d.parts[len(d.parts)-1].end)
	b, err := w.Fetch(p.start, p.end, p.end)
	if err != nil || isHeld {
		return b, err
	}
	at := len(d.kept)
	d.kept = append(d.kept, b...)
	return d.kept[at:], nil
}

// text returns the document's text.
func (d *decoder) text(w *extents.Window) ([]byte, error) {
	want := &d.wants.text
	p, way := d.find(want)
	if p == nil {
		return nil, sources.NewMissingError(want.path, sources.Absent, d.names())
	}
	b, err := d.bytes(w, p)
	if err != nil {
		return nil, err
	}
	if way.inside != nil {
		v, ok, err := p.inside(b, way)
		if err != nil {
			return nil, err
		}
		s, isText := v.(string)
		switch {
		case !ok:
			return nil, sources.NewMissingError(want.path, sources.Absent, d.names())
		case v == nil:
			return nil, sources.NewMissingError(want.path, sources.Null, d.names())
		case !isText:
			return nil, bad("field %q is not a text", want.path)
		}
		b = []byte(s)
	}
	if !valid.UTF8(b) {
		return nil, bad("field %q is not valid UTF-8", want.path)
	}
	return b, nil
}

// names lists the fields of the group, for people.
func (d *decoder) names() []string {
	var out []string
	for i := range d.parts {
		out = append(out, d.parts[i].suffix)
	}
	return out
}

// value returns a value in memory of its own, nil if the group has none.
func (d *decoder) value(w *extents.Window, want *want) (any, error) {
	p, way := d.find(want)
	if p == nil {
		if want.path == keyField {
			return strings.ToValidUTF8(string(d.key), "\ufffd"), nil
		}
		return nil, nil
	}
	b, err := d.bytes(w, p)
	if err != nil {
		return nil, err
	}
	var v any
	if way.inside != nil {
		v, _, err = p.inside(b, way)
	} else {
		v, err = valueOf(p.suffix, b)
	}
	if err != nil {
		return nil, bad("field %q: %v", want.path, err)
	}
	return v, nil
}

// inside returns the value of a path inside a member of JSON, which it parses once.
func (p *part) inside(b []byte, w *way) (v any, ok bool, err error) {
	if !p.isParsed {
		if p.parsed, err = values.FromJSON(b); err != nil {
			return nil, false, bad("member %q is no JSON: %v", p.suffix, err)
		}
		p.isParsed = true
	}
	record, _ := p.parsed.(values.Object)
	v, ok = w.inside.Of(record)
	return v, ok, nil
}
