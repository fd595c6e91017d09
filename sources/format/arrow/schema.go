package arrow

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/values"
)

// kind is a type of the Arrow format, by its number in Schema.fbs.
type kind int

// The kinds, as https://github.com/apache/arrow/blob/main/format/Schema.fbs numbers them.
const (
	kNull kind = iota + 1
	kInt
	kFloat
	kBinary
	kUtf8
	kBool
	kDecimal
	kDate
	kTime
	kTimestamp
	kInterval
	kList
	kStruct
	kUnion
	kFixedBinary
	kFixedList
	kMap
	kDuration
	kLargeBinary
	kLargeUtf8
	kLargeList
	kRunEnds
	kBinaryView
	kUtf8View
	kListView
	kLargeListView
)

// String returns the kind's name for people.
func (k kind) String() string {
	names := []string{"", "null", "int", "float", "binary", "utf8", "bool", "decimal", "date", "time", "timestamp",
		"interval", "list", "struct", "union", "fixed_size_binary", "fixed_size_list", "map", "duration",
		"large_binary", "large_utf8", "large_list", "run_end_encoded", "binary_view", "utf8_view", "list_view",
		"large_list_view"}
	if k < 1 || int(k) >= len(names) {
		return fmt.Sprintf("type %d", int(k))
	}
	return names[k]
}

// mostDepth is the deepest nesting of fields, and mostFields the largest number of fields of a schema.
const (
	mostDepth  = 64
	mostFields = 1 << 16
)

// field is a field of the schema with its children.
type field struct {
	name     string
	kind     kind
	typ      values.Type
	refused  string // name of an extension type that is not read
	width    int    // bytes of a value of one size; bits of an int or a float, divided by 8
	signed   bool   // of an int
	length   int    // of a fixed_size_list
	children []*field
	// dictionary is the number of the field's dictionary; index is the field of the places in it. The field itself
	// describes the dictionary's values.
	dictionary int64
	index      *field
}

// schemaReader reads fields of a schema.
type schemaReader struct{ fields int }

// readSchema returns the top field: a struct of the columns.
func readSchema(t flat) (*field, error) {
	metadata, err := t.metadata(2)
	if err != nil {
		return nil, err
	}
	if endian, err := t.number(0, 2, 0); err != nil || endian != 0 {
		return nil, fmt.Errorf("its numbers are big-endian: %w", errFlat)
	}
	columns, err := t.tables(1)
	if err != nil {
		return nil, err
	}
	top := &field{kind: kStruct}
	var r schemaReader
	for _, c := range columns {
		f, err := r.field(c, 1)
		if err != nil {
			return nil, err
		}
		top.children = append(top.children, f)
	}
	if features, ok := metadata[values.FeaturesKey]; ok {
		top.mark(values.FeaturesOf([]byte(features)))
	}
	return top, nil
}

func (r *schemaReader) field(t flat, depth int) (*field, error) {
	if r.fields++; r.fields > mostFields || depth > mostDepth {
		return nil, sources.Limited("write the file again with the columns that are wanted",
			"its schema has more than %d fields, or is nested deeper than %d", mostFields, mostDepth)
	}
	name, err := t.text(0)
	if err != nil {
		return nil, err
	}
	number, err := t.number(2, 1, 0)
	if err != nil {
		return nil, err
	}
	of, _, err := t.table(3)
	if err != nil {
		return nil, err
	}
	f := &field{name: name, kind: kind(number)}
	if err := f.setWidth(of); err != nil {
		return nil, err
	}
	if err := f.setType(of); err != nil {
		return nil, err
	}
	metadata, err := t.metadata(6)
	if err != nil {
		return nil, err
	}
	f.extend(metadata[extensionKey])
	children, err := t.tables(5)
	if err != nil {
		return nil, err
	}
	for _, c := range children {
		child, err := r.field(c, depth+1)
		if err != nil {
			return nil, err
		}
		f.children = append(f.children, child)
	}
	if err := f.fits(); err != nil {
		return nil, err
	}
	if d, ok, err := t.table(4); err != nil || !ok {
		return f, err
	} else if f.dictionary, err = d.number(0, 8, 0); err != nil {
		return nil, err
	} else {
		return f, f.setIndex(d)
	}
}

// setIndex reads the type of the places in a dictionary, which is a 32-bit int by default.
func (f *field) setIndex(d flat) error {
	f.index = &field{name: f.name, kind: kInt, width: 4, signed: true}
	t, ok, err := d.table(1)
	if err != nil || !ok {
		return err
	}
	if err := f.index.setWidth(t); err != nil {
		return err
	}
	return f.index.fits()
}

// setWidth reads the parameters of a field's type.
func (f *field) setWidth(t flat) (err error) {
	bits, signed := int64(0), int64(0)
	switch f.kind {
	case kInt:
		if signed, err = t.number(1, 1, 0); err == nil {
			bits, err = t.number(0, 4, 0)
		}
		f.signed = signed != 0
	case kFloat:
		var precision int64
		if precision, err = t.number(0, 2, 0); precision >= 0 && precision < 3 {
			bits = 16 << precision
		}
	case kDate:
		if bits, err = t.number(0, 2, 1); err == nil {
			bits = 32 << (bits & 1)
		}
		f.signed = true
	case kTime:
		bits, err = t.number(1, 4, 32)
		f.signed = true
	case kTimestamp, kDuration:
		bits, f.signed = 64, true
	case kDecimal:
		bits, err = t.number(2, 4, 128)
	case kInterval:
		if bits, err = t.number(0, 2, 0); err == nil {
			bits = 32 << (bits & 3)
		}
	case kFixedBinary:
		bits, err = t.number(0, 4, 0)
		bits *= 8
	case kFixedList:
		var n int64
		n, err = t.number(0, 4, 0)
		f.length = int(n)
	}
	f.width = int(bits / 8)
	return err
}

// fits checks the parameters of a type.
func (f *field) fits() error {
	ok := true
	switch f.kind {
	case kInt, kFloat, kDate, kTime, kTimestamp, kDuration:
		ok = f.width == 1 || f.width == 2 || f.width == 4 || f.width == 8
	case kDecimal:
		ok = f.width == 4 || f.width == 8 || f.width == 16 || f.width == 32
	case kFixedBinary:
		ok = f.width >= 0
	case kFixedList:
		ok = f.length >= 0 && len(f.children) == 1
	case kList, kLargeList, kListView, kLargeListView:
		ok = len(f.children) == 1
	case kMap:
		ok = len(f.children) == 1 && f.children[0].kind == kStruct && len(f.children[0].children) == 2
	case kRunEnds:
		ok = len(f.children) == 2
	}
	if !ok {
		return fmt.Errorf("field %q of its schema is no %v: %w", f.name, f.kind, errFlat)
	}
	return nil
}

// isText reports whether a field's values are strings or binary.
func (f *field) isText() bool {
	switch f.kind {
	case kBinary, kUtf8, kLargeBinary, kLargeUtf8, kBinaryView, kUtf8View:
		return true
	}
	return false
}

// isPlain reports whether a column can be the text of documents.
func (f *field) isPlain() bool { return f.isText() || f.kind == kNull }

// unread returns the name of a type below the field that is not read, "" if there is none.
func (f *field) unread() string {
	switch f.kind {
	case kInterval, kUnion, kRunEnds:
		return f.kind.String()
	}
	if f.refused != "" {
		return f.refused
	}
	if f.kind < kNull || f.kind > kLargeListView {
		return f.kind.String()
	}
	for _, c := range f.children {
		if t := c.unread(); t != "" {
			return t
		}
	}
	return ""
}

// find returns the way from the top to the field of a path: the places among the children of each struct.
func (f *field) find(file string, path fields.Path) (way []int, at *field, err error) {
	at = f
	for i, part := range path.Parts {
		if at.kind != kStruct || at.index != nil {
			return nil, nil, millrace.Errorf(millrace.ErrInvalid, "%s: column %q is %v and has no field %q", file,
				strings.Join(path.Parts[:i], "."), at.kind, part)
		}
		rest := at.child(path.Rests[i])
		if rest < 0 {
			rest = at.child(part)
		} else if path.Rests[i] != part {
			return append(way, rest), at.children[rest], nil
		}
		if rest < 0 {
			return nil, nil, &sources.LackError{Field: path.String(), Names: f.names(), Err: millrace.Errorf(
				millrace.ErrInvalid, "%s has no column %q; there are: %s", file, strings.Join(path.Parts[:i+1], "."),
				at.list(path.Parts[:i]))}
		}
		way, at = append(way, rest), at.children[rest]
	}
	return way, at, nil
}

func (f *field) child(name string) int {
	return slices.IndexFunc(f.children, func(c *field) bool { return c.name == name })
}

// list returns the names of the children as a user writes them.
func (f *field) list(path []string) string {
	const most = 20
	var names []string
	for i, c := range f.children {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(f.children)-most))
			break
		}
		names = append(names, strings.Join(append(slices.Clone(path), c.name), "."))
	}
	return strings.Join(names, ", ")
}
