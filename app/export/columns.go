package export

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// column is a field of a row as a column of a table.
type column struct {
	name       string
	index      []int // of the field, through embedded structs
	kind       arrow.DataType
	isNullable bool // the field, or a struct around it, is a pointer
}

// columnsOf returns the columns of a struct in the order of its fields, with those of embedded structs. A nil pointer
// is null. Every integer becomes an int64, because not all readers have unsigned integers; a larger one is an error.
func columnsOf[T any]() ([]column, error) {
	of := reflect.TypeFor[T]()
	var out []column
	for _, f := range reflect.VisibleFields(of) {
		if f.Anonymous || !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		c := column{name: name, index: f.Index}
		for i := range f.Index[:len(f.Index)-1] {
			c.isNullable = c.isNullable || of.FieldByIndex(f.Index[:i+1]).Type.Kind() == reflect.Pointer
		}
		t := f.Type
		if t.Kind() == reflect.Pointer {
			t, c.isNullable = t.Elem(), true
		}
		if c.kind = kindOf(t); c.kind == nil || name == "" {
			return nil, fmt.Errorf("field %s of %v cannot be a column: %v under the name %q", f.Name, of, f.Type, name)
		}
		out = append(out, c)
	}
	return out, nil
}

// kindOf returns the type of a column, or nil.
func kindOf(t reflect.Type) arrow.DataType {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return arrow.FixedWidthTypes.Timestamp_us // in UTC
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return arrow.ListOfNonNullable(arrow.BinaryTypes.String)
	case t.Kind() == reflect.String:
		return arrow.BinaryTypes.String
	case t.Kind() == reflect.Bool:
		return arrow.FixedWidthTypes.Boolean
	case t.Kind() == reflect.Float64:
		return arrow.PrimitiveTypes.Float64
	case reflect.Zero(t).CanInt(), reflect.Zero(t).CanUint():
		return arrow.PrimitiveTypes.Int64
	}
	return nil
}

func schemaOf(columns []column) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.name, Type: c.kind, Nullable: c.isNullable}
	}
	return arrow.NewSchema(fields, nil)
}

// appendRow adds a row, which is a pointer to a struct.
func appendRow(to *array.RecordBuilder, columns []column, row any) error {
	whole := reflect.ValueOf(row).Elem()
	for i, c := range columns {
		v, err := whole.FieldByIndexErr(c.index) // an error if an embedded pointer is nil
		if err != nil || v.Kind() == reflect.Pointer && v.IsNil() {
			to.Field(i).AppendNull()
			continue
		}
		if err := appendValue(to.Field(i), reflect.Indirect(v)); err != nil {
			return fmt.Errorf("column %s: %w", c.name, err)
		}
	}
	return nil
}

// appendValue adds a value to the column of its kind.
func appendValue(to array.Builder, v reflect.Value) error {
	switch b := to.(type) {
	case *array.StringBuilder:
		b.Append(v.String())
	case *array.BooleanBuilder:
		b.Append(v.Bool())
	case *array.Float64Builder:
		b.Append(v.Float())
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.Interface().(time.Time).UnixMicro()))
	case *array.ListBuilder:
		b.Append(true)
		for i := range v.Len() {
			b.ValueBuilder().(*array.StringBuilder).Append(v.Index(i).String())
		}
	case *array.Int64Builder:
		if v.CanInt() {
			b.Append(v.Int())
		} else if v.Uint() > math.MaxInt64 {
			return fmt.Errorf("%d is larger than the largest int64", v.Uint())
		} else {
			b.Append(int64(v.Uint()))
		}
	default:
		return fmt.Errorf("no values for a column of type %v", to.Type())
	}
	return nil
}
