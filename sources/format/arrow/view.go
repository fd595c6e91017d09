package arrow

import (
	"encoding/binary"
	"fmt"

	"millrace/sources"
)

// view is a column, or a part of one, in one record batch.
type view struct {
	f        sources.File
	field    *field
	rows     int64
	nulls    int64
	valid    buffer
	first    buffer   // offsets, views, places in a dictionary, or values of one size
	second   buffer   // bytes, or the sizes of a list view
	more     []buffer // bytes of a string view
	children []*view
	values   []*view // of the dictionary's parts
	firsts   []int64 // place of the first value of each part
}

// cursor goes through the nodes and buffers of a record batch, which are in the order of the schema's fields.
type cursor struct {
	f        sources.File
	body     int64
	size     int64
	nodes    []byte
	buffers  []byte
	variadic []byte
	codec    int
	ahead    int64
}

// newCursor reads the head of a record batch.
func newCursor(f sources.File, msg *message, t flat, ahead int64) (c *cursor, rows int64, err error) {
	c = &cursor{f: f, body: msg.body, size: msg.size, codec: codecNone, ahead: ahead}
	if rows, err = t.number(0, 8, 0); err != nil {
		return nil, 0, err
	}
	if c.nodes, _, err = t.vector(1, 16); err != nil {
		return nil, 0, err
	}
	if c.buffers, _, err = t.vector(2, 16); err != nil {
		return nil, 0, err
	}
	packed, ok, err := t.table(3)
	if err != nil {
		return nil, 0, err
	}
	if ok {
		codec, err := packed.number(0, 1, 0)
		if err != nil || codec != codecLZ4 && codec != codecZstd {
			return nil, 0, fmt.Errorf("its buffers have the unknown compression %d", codec)
		}
		c.codec = int(codec)
	}
	c.variadic, _, err = t.vector(4, 8)
	return c, rows, err
}

// take moves behind a field and its children. Of a field that is wanted it makes the view; old gives its memory.
func (c *cursor) take(f *field, wanted bool, old *view) (*view, error) {
	v := old
	if v == nil || v.field != f {
		v = &view{f: c.f, field: f}
	}
	if len(c.nodes) < 16 {
		return nil, errFlat
	}
	le := binary.LittleEndian
	v.rows, v.nulls = int64(le.Uint64(c.nodes)), int64(le.Uint64(c.nodes[8:]))
	c.nodes = c.nodes[16:]
	if v.rows < 0 {
		return nil, errFlat
	}
	if f.index != nil {
		return v, c.takeAll(&v.valid, &v.first)
	}
	if err := c.takeBuffers(f, v); err != nil {
		return nil, err
	}
	for i, child := range f.children {
		var was *view
		if i < len(v.children) {
			was = v.children[i]
		}
		x, err := c.take(child, wanted, was)
		if err != nil {
			return nil, err
		}
		if wanted && was == nil {
			v.children = append(v.children, x)
		} else if wanted {
			v.children[i] = x
		}
	}
	return v, nil
}

// takeBuffers takes the buffers of a field itself.
func (c *cursor) takeBuffers(f *field, v *view) error {
	switch f.kind {
	case kNull, kRunEnds:
		return nil
	case kUnion:
		return fmt.Errorf("column %q is a union: files with such columns are not read", f.name)
	case kStruct, kFixedList:
		return c.takeAll(&v.valid)
	case kBinary, kUtf8, kLargeBinary, kLargeUtf8, kListView, kLargeListView:
		return c.takeAll(&v.valid, &v.first, &v.second)
	case kBinaryView, kUtf8View:
		if err := c.takeAll(&v.valid, &v.first); err != nil {
			return err
		}
		if len(c.variadic) < 8 {
			return errFlat
		}
		n := binary.LittleEndian.Uint64(c.variadic)
		c.variadic = c.variadic[8:]
		if n > uint64(len(c.buffers)/16) {
			return errFlat
		}
		v.more = make([]buffer, n)
		for i := range v.more {
			if err := c.takeAll(&v.more[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return c.takeAll(&v.valid, &v.first)
}

func (c *cursor) takeAll(all ...*buffer) error {
	for _, b := range all {
		if len(c.buffers) < 16 {
			return errFlat
		}
		off := int64(binary.LittleEndian.Uint64(c.buffers))
		size := int64(binary.LittleEndian.Uint64(c.buffers[8:]))
		c.buffers = c.buffers[16:]
		if off < 0 || size < 0 || size > c.size || off > c.size-size {
			return fmt.Errorf("a buffer of %d bytes at byte %d of a body of %d bytes", size, off, c.size)
		}
		b.assign(c.f, c.body+off, size, c.codec, c.ahead)
	}
	return nil
}

// isNull reports whether a value is null.
func (v *view) isNull(i int64) (bool, error) {
	if v.field.kind == kNull && v.field.index == nil {
		return true, nil
	}
	if v.nulls == 0 || v.valid.size == 0 {
		return false, nil
	}
	b, err := v.valid.at(i>>3, 1)
	return err == nil && b[0]>>(i&7)&1 == 0, err
}

// offsets returns where a value begins and ends in the bytes or children.
func (v *view) offsets(i int64) (lo, hi int64, err error) {
	le := binary.LittleEndian
	switch v.field.kind {
	case kLargeBinary, kLargeUtf8, kLargeList:
		b, err := v.first.at(8*i, 16)
		if err != nil {
			return 0, 0, err
		}
		lo, hi = int64(le.Uint64(b)), int64(le.Uint64(b[8:]))
	case kListView:
		if lo, err = v.first.number(i, 4); err == nil {
			hi, err = v.second.number(i, 4)
		}
		hi += lo
	case kLargeListView:
		if lo, err = v.first.number(i, 8); err == nil {
			hi, err = v.second.number(i, 8)
		}
		hi += lo
	default:
		b, err := v.first.at(4*i, 8)
		if err != nil {
			return 0, 0, err
		}
		lo, hi = int64(int32(le.Uint32(b))), int64(int32(le.Uint32(b[4:])))
	}
	if err == nil && (lo < 0 || hi < lo) {
		err = damaged(v.f, "value %d of column %q ends before it begins", i, v.field.name)
	}
	return lo, hi, err
}

// number returns a signed integer of a buffer.
func (x *buffer) number(i, width int64) (int64, error) {
	b, err := x.at(i*width, width)
	if err != nil {
		return 0, err
	}
	switch width {
	case 1:
		return int64(int8(b[0])), nil
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b))), nil
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// entry returns the part and the place in it of a value of the dictionary.
func (v *view) entry(i int64) (*view, int64, error) {
	at, err := v.first.number(i, int64(v.field.index.width))
	if err != nil {
		return nil, 0, err
	}
	if w := v.field.index.width; !v.field.index.signed && w < 8 {
		at &= 1<<(8*w) - 1
	}
	for k := len(v.values) - 1; k >= 0; k-- {
		if at >= v.firsts[k] {
			if at -= v.firsts[k]; at >= v.values[k].rows {
				break
			}
			return v.values[k], at, nil
		}
	}
	return nil, 0, damaged(v.f, "value %d of column %q is not in its dictionary", i, v.field.name)
}
