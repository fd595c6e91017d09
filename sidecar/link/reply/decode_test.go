package reply

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"millrace"
)

// encode writes one record batch with Arrow's own writer: row i has index i and the given tokens.
func encode(t testing.TB, rows ...[]uint32) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "index", Type: arrow.PrimitiveTypes.Uint32},
		{Name: "tokens", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Uint32)},
	}, nil)
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	defer b.Release()
	index, lists := b.Field(0).(*array.Uint32Builder), b.Field(1).(*array.ListBuilder)
	for i, tokens := range rows {
		index.Append(uint32(i))
		lists.Append(true)
		lists.ValueBuilder().(*array.Uint32Builder).AppendValues(tokens, nil)
	}
	record := b.NewRecord()
	defer record.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(record), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(t testing.TB, raw []byte) (rows [][]uint32, err error) {
	t.Helper()
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	err = d.Rows(raw, func(index uint32, tokens []uint32) error {
		if int(index) == len(rows) {
			rows = append(rows, tokens)
		}
		return nil
	})
	return rows, err
}

func TestRowsComeAsWritten(t *testing.T) {
	want := [][]uint32{{1, 2, 3}, {}, {7}}
	rows, err := decode(t, encode(t, want...))
	if err != nil || !slices.EqualFunc(rows, want, slices.Equal) {
		t.Fatalf("%v: %v, want %v", err, rows, want)
	}
}

func TestAnErrorOfKeepIsReturned(t *testing.T) {
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	full, calls := errors.New("full"), 0
	err = d.Rows(encode(t, []uint32{1}, []uint32{2}), func(uint32, []uint32) error { calls++; return full })
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("%d calls, then %v", calls, err)
	}
}

func FuzzRows(f *testing.F) {
	raw := encode(f, []uint32{1, 2, 3}, []uint32{4})
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 8, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := decode(t, raw); err != nil && !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("a damaged reply gives %v", err)
		}
	})
}
