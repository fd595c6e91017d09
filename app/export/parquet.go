package export

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// parquetFile writes record batches as row groups.
//
// The library's package pqarrow would do this as well. It links Arrow's compute functions, which make the program a
// fifth larger.
type parquetFile struct {
	w *file.Writer
}

func newParquet(out io.Writer, of *arrow.Schema) (*parquetFile, error) {
	nodes := make(schema.FieldList, of.NumFields())
	for i, f := range of.Fields() {
		node, err := nodeOf(f)
		if err != nil {
			return nil, err
		}
		nodes[i] = node
	}
	root, err := schema.NewGroupNode("schema", parquet.Repetitions.Required, nodes, -1)
	if err != nil {
		return nil, err
	}
	properties := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithCreatedBy("millrace"))
	// Without Close of out: Write closes the file.
	return &parquetFile{file.NewParquetWriter(struct{ io.Writer }{out}, root, file.WithWriterProps(properties))}, nil
}

// nodeOf returns a column of Parquet for one of Arrow. The elements of a list are never null.
func nodeOf(f arrow.Field) (schema.Node, error) {
	repetition := parquet.Repetitions.Required
	if f.Nullable {
		repetition = parquet.Repetitions.Optional
	}
	text := func(name string) (*schema.PrimitiveNode, error) {
		return schema.NewPrimitiveNodeLogical(name, repetition, schema.StringLogicalType{}, parquet.Types.ByteArray,
			0, -1)
	}
	switch f.Type.ID() {
	case arrow.STRING:
		return text(f.Name)
	case arrow.BOOL:
		return schema.NewBooleanNode(f.Name, repetition, -1), nil
	case arrow.FLOAT64:
		return schema.NewFloat64Node(f.Name, repetition, -1), nil
	case arrow.INT64:
		return schema.NewInt64Node(f.Name, repetition, -1), nil
	case arrow.TIMESTAMP:
		return schema.NewPrimitiveNodeLogical(f.Name, repetition,
			schema.NewTimestampLogicalType(true, schema.TimeUnitMicros), parquet.Types.Int64, 0, -1)
	case arrow.LIST:
		if f.Nullable {
			return nil, fmt.Errorf("column %s: a list cannot be null", f.Name)
		}
		element, err := text("element")
		if err != nil {
			return nil, err
		}
		return schema.ListOfWithName(f.Name, element, repetition, -1)
	}
	return nil, fmt.Errorf("column %s: Parquet has no column for the type %v here", f.Name, f.Type)
}

// Write writes a row group.
func (p *parquetFile) Write(batch arrow.Record) error {
	group := p.w.AppendRowGroup()
	for _, values := range batch.Columns() {
		column, err := group.NextColumn()
		if err != nil {
			return err
		}
		if err := errors.Join(writeColumn(column, values), column.Close()); err != nil {
			return err
		}
	}
	return group.Close()
}

// Close writes the footer.
func (p *parquetFile) Close() error { return p.w.Close() }

// writeColumn writes the values of a column that are not null, with the levels that say which rows they belong to.
func writeColumn(column file.ColumnChunkWriter, values arrow.Array) (err error) {
	var there []int16 // of each row: 1 if it has a value; nil if no row can be null
	if column.Descr().MaxDefinitionLevel() > 0 {
		there = make([]int16, values.Len())
		for i := range there {
			if values.IsValid(i) {
				there[i] = 1
			}
		}
	}
	switch w := column.(type) {
	case *file.Int64ColumnChunkWriter:
		number := func(i int) int64 { return values.(*array.Int64).Value(i) }
		if moments, ok := values.(*array.Timestamp); ok {
			number = func(i int) int64 { return int64(moments.Value(i)) }
		}
		_, err = w.WriteBatch(valid(values, number), there, nil)
	case *file.Float64ColumnChunkWriter:
		_, err = w.WriteBatch(valid(values, values.(*array.Float64).Value), there, nil)
	case *file.BooleanColumnChunkWriter:
		_, err = w.WriteBatch(valid(values, values.(*array.Boolean).Value), there, nil)
	case *file.ByteArrayColumnChunkWriter:
		if lists, ok := values.(*array.List); ok {
			return writeLists(w, lists)
		}
		texts := func(i int) parquet.ByteArray { return []byte(values.(*array.String).Value(i)) }
		_, err = w.WriteBatch(valid(values, texts), there, nil)
	default:
		err = fmt.Errorf("no way to write a column of type %v", values.DataType())
	}
	return err
}

// valid returns the values that are not null.
func valid[T any](values arrow.Array, at func(int) T) []T {
	out := make([]T, 0, values.Len())
	for i := range values.Len() {
		if values.IsValid(i) {
			out = append(out, at(i))
		}
	}
	return out
}

// writeLists writes lists of strings. An empty list has the definition level 0 and no value; the first value of a list
// has the repetition level 0.
func writeLists(w *file.ByteArrayColumnChunkWriter, lists *array.List) error {
	texts := lists.ListValues().(*array.String)
	var values []parquet.ByteArray
	var there, within []int16
	for i := range lists.Len() {
		from, to := lists.ValueOffsets(i)
		if from == to {
			there, within = append(there, 0), append(within, 0)
		}
		for at := from; at < to; at++ {
			values = append(values, []byte(texts.Value(int(at))))
			there, within = append(there, 1), append(within, int16(min(at-from, 1)))
		}
	}
	_, err := w.WriteBatch(values, there, within)
	return err
}
