package parquet

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
	"millrace/sources/values"
)

// other is a further column: one value a row, or lists and structs.
type other struct {
	flat    *columnData // nil for lists and structs
	place   *place
	leaves  []*columnData
	missing any // value of every row if place is nil, because the file lacks the column
}

func openOther(f sources.File, meta *format.FileMetaData, root *node, field string, end int64) (*other, error) {
	p, err := findPlace(f, root, field)
	if err != nil {
		return nil, err
	}
	columns, err := p.leaves(f)
	if err != nil {
		return nil, err
	}
	o := &other{place: p}
	for _, c := range columns {
		d, err := openColumn(f, meta, c, end)
		if err != nil {
			return nil, err
		}
		o.leaves = append(o.leaves, d)
	}
	if len(p.children) == 0 && p.repeats == 0 {
		o.flat = o.leaves[0]
	}
	return o, nil
}

// otherReader reads the values of a further column. It is not safe for concurrent use.
type otherReader struct {
	data   *other
	flat   *reader
	leaves []*leaf
	used   int // leaves before the part that is made
	limit  int64
	left   int64 // bytes until the limit
}

func (o *other) newReader() *otherReader {
	r := &otherReader{data: o}
	if o.flat != nil {
		r.flat = newReader(o.flat)
		return r
	}
	for _, d := range o.leaves {
		r.leaves = append(r.leaves, newLeaf(d))
	}
	return r
}

// valueOf returns the value of a row in memory of its own, and its bytes in the file.
func (r *otherReader) valueOf(row uint64, limit int64) (v any, size int64, err error) {
	if r.data.place == nil {
		return r.data.missing, 0, nil
	}
	if r.flat != nil {
		b, err := r.flat.valueOf(row)
		if err != nil {
			return nil, 0, err
		}
		v, err := r.data.flat.col.value(b)
		return v, int64(len(b)), err
	}
	for _, l := range r.leaves {
		if err := l.gather(row, limit); err != nil {
			return nil, 0, err
		}
		if l.long {
			return nil, 0, errLong(limit)
		}
		for i := range l.got {
			size += int64(len(l.got[i].value))
		}
	}
	p := r.data.place
	r.used, r.limit, r.left = 0, limit, limit
	e, err := r.peek()
	if err != nil {
		return nil, 0, err
	}
	if e.level < uint32(p.above) {
		return nil, size, nil
	}
	v, err = r.value(p.node, p.above)
	return v, size, err
}

func errLong(limit int64) error {
	return millrace.Errorf(millrace.ErrBadSample, "the record is longer than sample_bytes, %d", limit)
}

// valueBytes is the least memory that a value counts for.
const valueBytes = 8

// peek returns the next entry of the first leaf of the part that is made.
func (r *otherReader) peek() (*entry, error) {
	l := r.leaves[r.used]
	if l.next >= len(l.got) {
		return nil, r.unequal()
	}
	if r.left -= valueBytes; r.left < 0 {
		return nil, errLong(r.limit)
	}
	return &l.got[l.next], nil
}

func (r *otherReader) unequal() error {
	return damaged(r.leaves[0].data.f, "the parts of column %q do not have equal lengths",
		strings.Join(r.data.place.path, "."))
}

// skip passes over one entry of each leaf of a node, which have nothing: a null or an empty list.
func (r *otherReader) skip(n *node) error {
	return n.walk(nil, func(*node, []string) error {
		l := r.leaves[r.used]
		if l.next >= len(l.got) {
			return r.unequal()
		}
		l.next++
		r.used++
		return nil
	})
}

// value makes the value of a node. above is the definition level of the nodes around it.
func (r *otherReader) value(n *node, above int) (any, error) {
	switch n.RepetitionType.V {
	case format.Repeated:
		return r.list(n, above, n)
	case format.Optional:
		e, err := r.peek()
		if err != nil {
			return nil, err
		}
		if e.level <= uint32(above) {
			return nil, r.skip(n)
		}
	}
	return r.content(n)
}

// content makes the value of a node that is there.
func (r *otherReader) content(n *node) (any, error) {
	if len(n.children) == 0 {
		l := r.leaves[r.used]
		if l.next >= len(l.got) || l.got[l.next].level < uint32(n.depth) {
			return nil, r.unequal()
		}
		v := l.got[l.next].value
		l.next++
		r.used++
		return l.data.col.value(v)
	}
	if inside := n.repeatedChild(); inside != nil {
		if n.isMap() {
			return r.mapped(n, inside)
		}
		return r.list(inside, n.depth, inside.element())
	}
	out := values.Object{Keys: slices.Clone(n.keys), Values: make([]any, len(n.children))}
	for i, c := range n.children {
		v, err := r.value(c, n.depth)
		if err != nil {
			return nil, err
		}
		out.Values[i] = v
	}
	return out.Unique(), nil
}

// list makes a list of the elements of a repeated node.
func (r *otherReader) list(n *node, above int, element *node) (any, error) {
	out := []any{}
	var ids []uint32
	areIDs := element.isWhole()
	err := r.each(n, above, func() error {
		if areIDs {
			id, ok, err := r.id(element)
			if err != nil {
				return err
			}
			if ok {
				ids = append(ids, id)
				return nil
			}
			if areIDs = false; len(ids) > 0 {
				for _, id := range ids {
					out = append(out, int(id))
				}
			}
		}
		var v any
		var err error
		if element == n {
			v, err = r.content(n)
		} else {
			v, err = r.value(element, n.depth)
		}
		out = append(out, v)
		return err
	})
	if err == nil && areIDs {
		return append([]uint32{}, ids...), nil
	}
	return out, err
}

// id takes a whole number that is a token id. ok is false if the next entry is another value; it is not taken then.
func (r *otherReader) id(n *node) (id uint32, ok bool, err error) {
	l := r.leaves[r.used]
	if l.next >= len(l.got) {
		return 0, false, r.unequal()
	}
	e := &l.got[l.next]
	if e.level < uint32(n.depth) {
		return 0, false, nil
	}
	x := uint64(0)
	switch {
	case len(e.value) == 8:
		x = binary.LittleEndian.Uint64(e.value)
	case n.typ.Kind == values.Whole:
		x = uint64(binary.LittleEndian.Uint32(e.value))
	default:
		x = uint64(int64(int32(binary.LittleEndian.Uint32(e.value))))
	}
	if x > math.MaxUint32 {
		return 0, false, nil
	}
	l.next++
	r.used++
	return uint32(x), true, nil
}

// each calls act for every element of a repeated node. act takes the entries of the element.
func (r *otherReader) each(n *node, above int, act func() error) error {
	first := r.used
	e, err := r.peek()
	if err != nil {
		return err
	}
	if e.level <= uint32(above) {
		return r.skip(n)
	}
	for {
		r.used = first
		l := r.leaves[first]
		before := l.next
		if r.left -= valueBytes; r.left < 0 {
			return errLong(r.limit)
		}
		if err := act(); err != nil {
			return err
		}
		if l.next == before {
			return r.unequal()
		}
		if l.next >= len(l.got) || l.got[l.next].repeat < uint32(n.repeats) {
			return nil
		}
	}
}

// mapped makes an object of a map whose keys are strings, else a list of its entries.
func (r *otherReader) mapped(n, entries *node) (any, error) {
	key, value := entries.children[0], entries.children[1]
	if isText := key.typ.Kind == values.Text || key.typ.Kind == values.Untyped; len(key.children) > 0 || !isText {
		return r.list(entries, n.depth, entries)
	}
	var out values.Object
	err := r.each(entries, n.depth, func() error {
		k, err := r.value(key, entries.depth)
		if err != nil {
			return err
		}
		v, err := r.value(value, entries.depth)
		name, ok := k.(string)
		if !ok && err == nil {
			err = millrace.Errorf(millrace.ErrBadSample, "a key of column %q is no string",
				strings.Join(r.data.place.path, "."))
		}
		out.Add(name, v)
		return err
	})
	return out.Unique(), err
}

// repeatedChild returns the node that a list or a map repeats, nil if the node is a struct.
func (n *node) repeatedChild() *node {
	if len(n.children) != 1 || n.children[0].RepetitionType.V != format.Repeated || !n.isMarked() {
		return nil
	}
	return n.children[0]
}

// isMarked reports whether the schema calls the node a list or a map.
func (n *node) isMarked() bool {
	switch n.LogicalType.Value.(type) {
	case *format.ListType, *format.MapType:
		return true
	}
	switch n.ConvertedType.V {
	case deprecated.List, deprecated.Map, deprecated.MapKeyValue:
		return true
	}
	return false
}

// isMap reports whether a node is a map: it repeats a struct of a key and a value.
func (n *node) isMap() bool {
	_, logical := n.LogicalType.Value.(*format.MapType)
	converted := n.ConvertedType.V == deprecated.Map || n.ConvertedType.V == deprecated.MapKeyValue
	return (logical || converted) && len(n.children[0].children) == 2
}

// element returns the elements of a list: the repeated node itself in the layout of old writers, else the one node in
// it. See https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists.
func (n *node) element() *node {
	if len(n.children) != 1 || n.Name == "array" || strings.HasSuffix(n.Name, "_tuple") {
		return n
	}
	return n.children[0]
}

// isWhole reports whether a node is a leaf of integers.
func (n *node) isWhole() bool {
	return len(n.children) == 0 && (n.typ.Kind == values.Signed || n.typ.Kind == values.Whole)
}
