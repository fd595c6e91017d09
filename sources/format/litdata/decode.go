package litdata

import (
	"encoding/binary"

	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/valid"
	"millrace/sources/values"
)

// decoder takes the values that a source needs out of items.
type decoder struct {
	index  *index
	wants  *wants
	unpack *itemUnpacker // nil if items are not packed one by one
	places [][2]int      // of each leaf's bytes in the item
	row    []any
}

var (
	_ extents.Decoder = (*decoder)(nil)
	_ extents.Values  = (*decoder)(nil)
)

func newDecoder(x *index, w *wants) *decoder {
	return &decoder{index: x, wants: w, places: make([][2]int, len(x.leaves)), row: make([]any, len(w.others))}
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
	if d.unpack != nil {
		if b, r.Err = d.unpack.item(b); r.Err != nil {
			return
		}
	}
	if r.Err = d.locate(b); r.Err != nil {
		return
	}
	extents.Fill(r, d, d.wants.hasText, d.row, b)
}

// Other implements extents.Values.
func (d *decoder) Other(i int, b []byte) (any, error) { return d.value(&d.wants.others[i], b) }

// locate finds the bytes of each leaf. The sizes of all leaves come first, but not in an item of tokens.
func (d *decoder) locate(b []byte) error {
	if d.index.isTokens {
		d.places[0] = [2]int{0, len(b)}
		return nil
	}
	at := 4 * len(d.places)
	if at > len(b) {
		return bad("its %d bytes end inside the sizes of its values", len(b))
	}
	for i := range d.places {
		size := int64(binary.LittleEndian.Uint32(b[4*i:]))
		if size > int64(len(b)-at) {
			return bad("value %q has %d bytes, and the item has %d more", d.index.leaves[i].path, size, len(b)-at)
		}
		d.places[i] = [2]int{at, at + int(size)}
		at += int(size)
	}
	if at != len(b) {
		return bad("its values end at byte %d of %d", at, len(b))
	}
	return nil
}

// Text implements extents.Values. It returns the document's text, or the reason why the item has none.
func (d *decoder) Text(b []byte) (text []byte, missing, err error) {
	w := &d.wants.text
	if w.inside == nil {
		place := d.places[w.leaf]
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

// value returns a value in memory of its own, nil if items have no such value.
func (d *decoder) value(w *want, b []byte) (any, error) {
	if w.leaf < 0 {
		return nil, nil
	}
	place := d.places[w.leaf]
	v, err := w.decode(b[place[0]:place[1]])
	if err != nil {
		return nil, bad("value %q: %v", d.index.leaves[w.leaf].path, err)
	}
	if w.inside != nil {
		record, _ := v.(values.Object)
		v, _ = w.inside.Of(record)
	}
	return v, nil
}
