package parquet_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"millrace/sources"
	"millrace/sources/format/parquet"
	"millrace/sources/sourcetest"
)

func written(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// plain returns a value as JSON has it.
func plain(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case []uint32:
		out := []any{}
		for _, n := range v {
			out = append(out, float64(n))
		}
		return out
	case []any:
		out := []any{}
		for _, x := range v {
			out = append(out, plain(x))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[k] = plain(x)
		}
		return out
	}
	return v
}

// nested are the files of other writers and the columns in them.
func nested() map[string][]string {
	all := []string{"text", "meta", "messages", "ids", "labels", "holes", "deep", "loss_mask", "meta.lang", "meta.tags",
		"map"}
	return map[string][]string{
		"snappy.parquet": all, "v2.parquet": all, "gzip-item.parquet": all, "brotli-index.parquet": all,
		"lz4.parquet": all, "delta.parquet": all[:len(all)-1], "duckdb.parquet": all, "v2-index.parquet": all,
		"plain-index.parquet": {"text", "ids", "meta"},
	}
}

// TestNested: lists, structs and maps of other writers have the values that were written, in order and at random.
func TestNested(t *testing.T) {
	var want []map[string]any
	if err := json.Unmarshal(written(t, "rows.json"), &want); err != nil {
		t.Fatal(err)
	}
	for name, columns := range nested() {
		s, err := keeping().Open(t.Context(), memoryFile(written(t, name)), sources.Field{Others: columns},
			sources.Limits{}.Resolved(), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows := 0
		check := func(r sources.Record) error {
			rows++
			for i, column := range columns {
				w := any(want[r.Number])
				for part := range strings.SplitSeq(column, ".") {
					if m, ok := w.(map[string]any); ok {
						w = m[part]
					}
				}
				if got := plain(sourcetest.Maps(r.Others[i])); r.Err != nil || !reflect.DeepEqual(got, w) {
					return fmt.Errorf("record %d: %s is %v, want %v (%v)", r.Number, column, got, w, r.Err)
				}
			}
			return nil
		}
		if err := s.Scan(t.Context(), 0, check); err != nil || rows != len(want) {
			t.Errorf("%s: %d rows, %v", name, rows, err)
		}
		for _, numbers := range [][]uint64{{65}, {0}, {29, 30, 39, 40}, {9, 41, 60}, {5}, {5}, {0, 1, 2, 3, 50, 64}} {
			if err := s.Read(t.Context(), numbers, check); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestIDs: a list of whole numbers from 0 up is ids. One of them below 0 makes it a list of numbers.
func TestIDs(t *testing.T) {
	s, err := keeping().Open(t.Context(), memoryFile(written(t, "snappy.parquet")),
		sources.Field{Others: []string{"ids", "labels"}}, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Read(t.Context(), []uint64{4}, func(r sources.Record) error {
		if want := []any{[]uint32{68, 69, 70, 71}, []any{-100, -100, 2, 3}}; !reflect.DeepEqual(r.Others, want) {
			t.Errorf("got %#v, want %#v", r.Others, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestBareRepeated: a repeated field without a list around it is a list.
func TestBareRepeated(t *testing.T) {
	type row struct {
		Text string   `parquet:"text"`
		IDs  []int32  `parquet:"ids"`
		Tags []string `parquet:"tags"`
	}
	rows := []row{{"a", []int32{1, 2, 3}, nil}, {"b", nil, []string{"x"}}, {"c", []int32{-4}, []string{"y", "z"}}}
	var b bytes.Buffer
	w := pq.NewGenericWriter[row](&b)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := keeping().Open(t.Context(), memoryFile(b.Bytes()),
		sources.Field{Text: "text", Others: []string{"ids", "tags"}}, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []any
	for n := range rows { // at random, as levels of version 2 pages give their rows
		err := s.Read(t.Context(), []uint64{uint64(n)}, func(r sources.Record) error {
			got = append(got, r.Others[0], r.Others[1])
			return r.Err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []any{[]uint32{1, 2, 3}, []any{}, []uint32{}, []any{"x"}, []any{-4}, []any{"y", "z"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, want %#v", got, want)
	}
}

// TestLongLists: a list above sample_bytes costs its row alone.
func TestLongLists(t *testing.T) {
	s, err := keeping().Open(t.Context(), memoryFile(written(t, "snappy.parquet")),
		sources.Field{Others: []string{"messages", "loss_mask"}}, sources.Limits{SampleBytes: 300}, nil)
	if err != nil {
		t.Fatal(err)
	}
	long, rows := 0, 0
	err = s.Scan(t.Context(), 0, func(r sources.Record) error {
		rows++
		if r.Err != nil && strings.Contains(r.Err.Error(), "sample_bytes") {
			long++
		}
		return nil
	})
	if err != nil || rows != 66 || long < 10 || long > 60 {
		t.Errorf("%d of %d rows are too long: %v", long, rows, err)
	}
}

// TestHadoopLZ4: the codec LZ4 of old writers has blocks with their sizes in front.
func TestHadoopLZ4(t *testing.T) {
	raw := []byte{0x50, 'h', 'e', 'l', 'l', 'o'}
	framed := binary.BigEndian.AppendUint32(nil, 5)
	framed = append(binary.BigEndian.AppendUint32(framed, uint32(len(raw))), raw...)
	for _, packed := range [][]byte{append(bytes.Clone(framed), framed...)} {
		if got, err := parquet.UnpackHadoop(packed, 10); err != nil || string(got) != "hellohello" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if got, err := parquet.UnpackHadoop(raw, 5); err != nil || string(got) != "hello" {
		t.Errorf("without sizes: got %q, %v", got, err)
	}
}

func TestDamageNested(t *testing.T) {
	few := sourcetest.Fixture{Name: "few", Files: sourcetest.Files{"few.parquet": written(t, "few.parquet")},
		Field: sources.Field{Others: []string{"meta", "messages", "ids", "holes"}}, Seekable: true}
	index := sourcetest.Fixture{Name: "index", Files: sourcetest.Files{"i.parquet": written(t, "plain-index.parquet")},
		Field: sources.Field{Text: "text", Others: []string{"meta", "ids"}}, Seekable: true}
	sourcetest.Damage(t, format, []sourcetest.Fixture{few, index}, 256<<20)
}

func FuzzNested(f *testing.F) {
	for name := range nested() {
		f.Add(written(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, columns := range [][]string{{"meta", "messages", "ids", "deep"}, {"text", "ids", "meta"}} {
			fixture := sourcetest.Fixture{Files: sourcetest.Files{"a.parquet": b},
				Field: sources.Field{Others: columns}}
			sourcetest.Fuzz(t, format, fixture)
			sourcetest.Fuzz(t, func(sources.FS) sources.Format { return farFormat{t: t} }, fixture)
		}
	})
}
