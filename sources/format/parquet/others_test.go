package parquet_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"millrace"
	"millrace/sources"
)

// table has a column of every type that filters read, in the encodings that writers use.
type table struct {
	Text   string   `parquet:"text"`
	Int    int32    `parquet:"int,delta"`
	Long   int64    `parquet:"long,delta"`
	Plain  int64    `parquet:"plain"`
	Coded  int64    `parquet:"coded,dict"`
	Double float64  `parquet:"double,split"`
	Float  *float32 `parquet:"float,optional"`
	Flag   bool     `parquet:"flag"`
	Word   *string  `parquet:"word,optional,dict"`
	Inner  inner    `parquet:"inner"`
	List   []int64  `parquet:"list,list"`
}

type inner struct {
	Year int32 `parquet:"year"`
}

func memoryFile(b []byte) sources.File { return file{bytes.NewReader(b)} }

type file struct{ *bytes.Reader }

func (f file) Name() string { return "t.parquet" }
func (f file) Size() int64  { return f.Reader.Size() }

func rowsOf(n int) []table {
	out := make([]table, n)
	for i := range out {
		out[i] = table{
			Text:   strings.Repeat("t", i%7),
			Int:    int32(i*i) - 50,
			Long:   int64(i) << 40,
			Plain:  -int64(i),
			Coded:  int64(i % 3),
			Double: float64(i) / 3,
			Flag:   i%5 == 0,
			Inner:  inner{Year: int32(2000 + i%20)},
		}
		if i%4 != 0 {
			f, w := float32(i)/2, []string{"en", "de", "fr"}[i%3]
			out[i].Float, out[i].Word = &f, &w
		}
	}
	return out
}

func TestOtherColumns(t *testing.T) {
	rows := rowsOf(3000)
	var b bytes.Buffer
	w := pq.NewGenericWriter[table](&b, pq.PageBufferSize(4096), pq.MaxRowsPerRowGroup(1100))
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	names := []string{"int", "long", "plain", "coded", "double", "float", "flag", "word", "inner.year"}
	s, err := keeping().Open(context.Background(), memoryFile(b.Bytes()),
		sources.Field{Text: "text", Others: names}, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	check := func(r sources.Record) error {
		row := &rows[r.Number]
		want := []any{int(row.Int), int(row.Long), int(row.Plain), int(row.Coded), row.Double, nil, row.Flag, nil,
			int(row.Inner.Year)}
		if row.Float != nil {
			want[5], want[7] = float64(*row.Float), *row.Word
		}
		if r.Err != nil || string(r.Text) != row.Text || !reflect.DeepEqual(r.Others, want) {
			t.Fatalf("row %d: %q %#v %v, want %q %#v", r.Number, r.Text, r.Others, r.Err, row.Text, want)
		}
		return nil
	}
	if err := s.Scan(context.Background(), 5, check); err != nil {
		t.Fatal(err)
	}
	for range 3 { // readers are reused
		if err := s.Read(context.Background(), []uint64{0, 1, 7, 1099, 1100, 2999}, check); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"list.list.element": "is a list",
		"nothing": "has no column \"nothing\"; there are: "} {
		_, err := keeping().Open(context.Background(), memoryFile(b.Bytes()),
			sources.Field{Text: "text", Others: []string{name}}, sources.Limits{}.Resolved(), nil)
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
