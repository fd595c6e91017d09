package parquet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"

	pq "github.com/parquet-go/parquet-go"

	"millrace"
	"millrace/sources"
	"millrace/sources/sourcetest"
)

// TestForeignIndexes: files of parquet-mr and parquet-rs with page indexes have the values that pyarrow reads.
func TestForeignIndexes(t *testing.T) {
	var files map[string]map[string][]any
	if err := json.Unmarshal(written(t, "foreign.json"), &files); err != nil {
		t.Fatal(err)
	}
	for name, columns := range files {
		for column, want := range columns {
			s, err := keeping().Open(t.Context(), memoryFile(written(t, path.Join("foreign", name))),
				sources.Field{Others: []string{column}}, sources.Limits{}.Resolved(), nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			check := func(r sources.Record) error {
				n++
				if got := plain(sourcetest.Maps(r.Others[0])); r.Err != nil || !reflect.DeepEqual(got, want[r.Number]) {
					t.Errorf("%s: %s of record %d is %v (%v), want %v", name, column, r.Number, got, r.Err,
						want[r.Number])
				}
				return nil
			}
			if err := s.Scan(t.Context(), 0, check); err != nil || n != len(want) {
				t.Errorf("%s: %d records, want %d: %v", name, n, len(want), err)
			}
			for i := range want {
				if err := s.Read(t.Context(), []uint64{uint64(i * 7 % len(want))}, check); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// indexes returns the places of the page index of some columns.
func indexes(t testing.TB, file []byte, columns ...string) (out []sources.Range) {
	f, err := pq.OpenFile(bytes.NewReader(file), int64(len(file)), pq.SkipPageIndex(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range f.Metadata().RowGroups {
		for _, c := range g.Columns {
			for _, name := range columns {
				if c.OffsetIndexLength > 0 && c.MetaData.PathInSchema[0] == name {
					at := c.OffsetIndexOffset
					out = append(out, sources.Range{Start: at, End: at + int64(c.OffsetIndexLength)})
				}
			}
		}
	}
	return out
}

// TestFlippedIndex: with any bit of a page index flipped, a record is the one that was written, or an error names the
// file and the cure. Each record is also read by itself, so that no other page betrays the damage.
func TestFlippedIndex(t *testing.T) {
	for _, name := range []string{"plain-index.parquet", "v2-index.parquet"} {
		whole := written(t, name)
		field := sources.Field{Text: "text", Others: []string{"ids", "meta"}}
		want := map[uint64]string{}
		if _, err := seen(t, whole, field, nil, func(r sources.Record) { want[r.Number] = fmt.Sprint(r) }); err != nil {
			t.Fatal(err)
		}
		damaged, same := 0, 0
		for _, at := range indexes(t, whole, "text", "ids", "meta") {
			for i := at.Start; i < at.End; i++ {
				file := bytes.Clone(whole)
				file[i] ^= 1 << (i % 8)
				check := func(r sources.Record) {
					if got := fmt.Sprint(r); got != want[r.Number] {
						t.Errorf("%s, byte %d: record %d is %s, want %s", name, i, r.Number, got, want[r.Number])
					}
				}
				for from := uint64(i) % 7; from < uint64(len(want)); from += 7 {
					n, err := seen(t, file, field, []uint64{from}, check)
					switch {
					case err == nil && n == 1:
						same++
					case errors.Is(err, millrace.ErrDamaged) && strings.Contains(err.Error(), "t.parquet"):
						damaged++
						if !strings.Contains(err.Error(), "copy the file again") {
							t.Errorf("%s, byte %d: no cure in: %v", name, i, err)
						}
					default:
						t.Errorf("%s, byte %d: %d records, %v", name, i, n, err)
					}
				}
				if n, err := seen(t, file, field, nil, check); err == nil && n != len(want) {
					t.Errorf("%s, byte %d: %d records without an error", name, i, n)
				}
			}
		}
		if damaged < 1000 || same < 1000 {
			t.Errorf("%s: %d reads found damage, %d did not", name, damaged, same)
		}
	}
}

// seen passes the records with these numbers of a file to check, or all if there are no numbers.
func seen(t *testing.T, b []byte, field sources.Field, numbers []uint64, check func(sources.Record)) (n int,
	err error) {
	s, err := keeping().Open(t.Context(), memoryFile(b), field, sources.Limits{}.Resolved(), nil)
	if err != nil {
		return 0, err
	}
	take := func(r sources.Record) error {
		n++
		check(r)
		return nil
	}
	if numbers == nil {
		return n, s.Scan(t.Context(), 0, take)
	}
	return n, s.Read(t.Context(), numbers, take)
}

// TestIndexOfOtherPages: a page index with the places of other pages is damage that names the file and the cure.
func TestIndexOfOtherPages(t *testing.T) {
	file := written(t, "plain-index.parquet")
	places := indexes(t, file, "ids")
	first, second := places[0], places[1]
	copy(file[first.Start:first.End], file[second.Start:second.End])
	_, err := seen(t, file, sources.Field{Others: []string{"ids"}}, nil, func(sources.Record) {})
	if !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), "page index of column [ids") ||
		!strings.Contains(err.Error(), "write it without a page index") {
		t.Errorf("got %v", err)
	}
}
