package arrow

import (
	"encoding/binary"
	"math"

	"millrace"
	"millrace/sources/values"
)

// errLong is the reason of a record whose values are longer than the limit.
func errLong(limit int64) error {
	return millrace.Errorf(millrace.ErrBadSample, "the record is longer than sample_bytes, %d", limit)
}

// text returns a string or binary value, nil if it is null. It is valid until the next call. A value above the limit is
// not read.
func (v *view) text(i, limit int64) ([]byte, error) {
	if v.field.index != nil {
		if null, err := v.isNull(i); null || err != nil {
			return nil, err
		}
		part, at, err := v.entry(i)
		if err != nil {
			return nil, err
		}
		v, i = part, at
	}
	if null, err := v.isNull(i); null || err != nil {
		return nil, err
	}
	if v.field.kind == kBinaryView || v.field.kind == kUtf8View {
		return v.viewed(i, limit)
	}
	lo, hi, err := v.offsets(i)
	if err != nil {
		return nil, err
	}
	return v.second.bytesOf(lo, hi-lo, limit)
}

func (b *buffer) bytesOf(lo, n, limit int64) ([]byte, error) {
	if n > limit {
		return nil, errLong(limit)
	}
	out, err := b.at(lo, n)
	if out == nil && err == nil {
		out = []byte{}
	}
	return out, err
}

// viewed returns a string of a view: up to 12 bytes in place, others in one of the further buffers.
func (v *view) viewed(i, limit int64) ([]byte, error) {
	b, err := v.first.at(16*i, 16)
	if err != nil {
		return nil, err
	}
	n := int64(int32(binary.LittleEndian.Uint32(b)))
	if n >= 0 && n <= 12 {
		return b[4 : 4+n : 4+n], nil
	}
	k, lo := binary.LittleEndian.Uint32(b[8:]), int64(int32(binary.LittleEndian.Uint32(b[12:])))
	if n < 0 || uint64(k) >= uint64(len(v.more)) {
		return nil, damaged(v.f, "value %d of column %q lies in no buffer", i, v.field.name)
	}
	return v.more[k].bytesOf(lo, n, limit)
}

// reading makes the values of a record. left bounds its bytes.
type reading struct{ limit, left int64 }

func (r *reading) take(n int64) error {
	if r.left -= n; r.left < 0 {
		return errLong(r.limit)
	}
	return nil
}

// valueBytes is the least memory that a value counts for.
const valueBytes = 8

// value returns a value in memory of its own, as sources.Record.Others has it. A list of integers is []uint32 if they
// all fit.
func (r *reading) value(v *view, i int64) (any, error) {
	if err := r.take(valueBytes); err != nil {
		return nil, err
	}
	if i < 0 || i >= v.rows {
		return nil, damaged(v.f, "column %q has %d values, and value %d is asked for", v.field.name, v.rows, i)
	}
	if null, err := v.isNull(i); null || err != nil {
		return nil, err
	}
	if v.field.index != nil {
		part, at, err := v.entry(i)
		if err != nil {
			return nil, err
		}
		return r.value(part, at)
	}
	switch v.field.kind {
	case kBool:
		b, err := v.first.at(i>>3, 1)
		return err == nil && b[0]>>(i&7)&1 != 0, err
	case kInt, kDate, kTime, kTimestamp, kDuration, kFloat, kDecimal, kFixedBinary:
		return v.fixed(i)
	case kStruct:
		return r.object(v, i)
	case kMap:
		return r.mapped(v, i)
	case kList, kLargeList, kListView, kLargeListView:
		lo, hi, err := v.offsets(i)
		if err != nil {
			return nil, err
		}
		return r.list(v.children[0], lo, hi)
	case kFixedList:
		n := int64(v.field.length)
		return r.list(v.children[0], i*n, i*n+n)
	}
	return r.bytes(v, i)
}

// bytes returns a string or binary value.
func (r *reading) bytes(v *view, i int64) (any, error) {
	b, err := v.text(i, max(r.left, 0))
	if err != nil {
		return nil, err
	}
	if err := r.take(int64(len(b))); err != nil {
		return nil, err
	}
	return v.of(b)
}

// fixed returns a value of a fixed size.
func (v *view) fixed(i int64) (any, error) {
	w := int64(v.field.width)
	b, err := v.first.at(i*w, w)
	if err != nil {
		return nil, err
	}
	if b == nil {
		b = []byte{} // of the width 0: nil is null
	}
	return v.of(b)
}

// of returns the value of stored bytes.
func (v *view) of(b []byte) (any, error) {
	out, err := v.field.typ.Of(b)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrBadSample, "column %q: %v", v.field.name, err)
	}
	return out, nil
}

func (r *reading) object(v *view, i int64) (any, error) {
	var out values.Object
	for _, c := range v.children {
		x, err := r.value(c, i)
		if err != nil {
			return nil, err
		}
		out.Add(c.field.name, x)
	}
	return out.Unique(), nil
}

// mapped returns a map as an object if its keys are strings, else as a list of entries.
func (r *reading) mapped(v *view, i int64) (any, error) {
	lo, hi, err := v.offsets(i)
	if err != nil {
		return nil, err
	}
	entries := v.children[0]
	if !entries.children[0].field.isText() {
		return r.list(entries, lo, hi)
	}
	var out values.Object
	for ; lo < hi; lo++ {
		key, err := r.value(entries.children[0], lo)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, millrace.Errorf(millrace.ErrBadSample, "a key of column %q is no string", v.field.name)
		}
		x, err := r.value(entries.children[1], lo)
		if err != nil {
			return nil, err
		}
		out.Add(name, x)
	}
	return out.Unique(), nil
}

// list returns the values of a child from lo up to hi.
func (r *reading) list(v *view, lo, hi int64) (any, error) {
	if hi > v.rows || hi-lo > r.left {
		if hi > v.rows {
			return nil, damaged(v.f, "a list ends at value %d of column %q, which has %d", hi, v.field.name,
				v.rows)
		}
		return nil, errLong(r.limit)
	}
	if v.field.isWhole() && v.nulls == 0 {
		if ids, ok, err := r.ids(v, lo, hi); ok || err != nil {
			return ids, err
		}
	}
	out := make([]any, 0, min(hi-lo, 1<<10))
	for ; lo < hi; lo++ {
		x, err := r.value(v, lo)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// ids returns whole numbers as token ids. ok is false if one is no id.
func (r *reading) ids(v *view, lo, hi int64) (ids []uint32, ok bool, err error) {
	w := int64(v.field.width)
	b, err := v.first.at(lo*w, (hi-lo)*w)
	if err != nil {
		return nil, false, err
	}
	out := make([]uint32, 0, hi-lo)
	for len(b) > 0 {
		var n uint64
		switch w {
		case 1:
			n = uint64(b[0])
		case 2:
			n = uint64(binary.LittleEndian.Uint16(b))
		case 4:
			n = uint64(binary.LittleEndian.Uint32(b))
		default:
			n = binary.LittleEndian.Uint64(b)
		}
		if n > math.MaxUint32 || v.field.signed && w < 8 && n>>(8*w-1) != 0 {
			return nil, false, nil
		}
		out, b = append(out, uint32(n)), b[w:]
	}
	return out, true, r.take(4 * int64(len(out)))
}
