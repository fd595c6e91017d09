package export_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/pqarrow"

	"millrace/app/exit"
	"millrace/app/export"
)

type inner struct {
	Rank *int `json:"rank"`
	Row  int  `json:"row,omitempty"`
}

type row struct {
	Step   uint64    `json:"step"`
	Name   string    `json:"name"`
	Share  float64   `json:"share"`
	Masked bool      `json:"masked"`
	Words  []string  `json:"words"`
	When   time.Time `json:"when"`
	*inner
}

// written writes n rows; every third has no inner struct.
func written(t *testing.T, path string, n int) {
	t.Helper()
	rank := 3
	err := export.Write(path, func(add func(row) error) error {
		for i := range n {
			r := row{Step: uint64(i), Name: "ünï", Share: 0.5, Masked: i%2 == 0, Words: []string{"a", "b"}[:i%3],
				When: time.UnixMicro(int64(i))}
			if i%3 > 0 {
				r.inner = &inner{Rank: &rank, Row: i}
			}
			if err := add(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the rows of a file as JSON lines, and its schema.
func read(t *testing.T, path string) (lines []string, schema *arrow.Schema) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []arrow.Record
	if filepath.Ext(path) == ".arrow" {
		r, err := ipc.NewFileReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		schema = r.Schema()
		for i := range r.NumRecords() {
			batch, err := r.RecordAt(i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, batch)
		}
	} else {
		pq, err := file.NewParquetReader(bytes.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		r, err := pqarrow.NewFileReader(pq, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		table, err := r.ReadTable(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		schema = table.Schema()
		for batches := array.NewTableReader(table, 0); batches.Next(); {
			batches.Record().Retain()
			all = append(all, batches.Record())
		}
	}
	for _, batch := range all {
		text, err := batch.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(strings.TrimSuffix(strings.TrimPrefix(string(text), "["), "]")) {
			lines = append(lines, strings.Trim(line, ",\n"))
		}
	}
	return lines, schema
}

// TestRows: both formats have the same rows, with null for a missing struct.
func TestRows(t *testing.T) {
	for _, name := range []string{"rows.parquet", "rows.arrow"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("older"), 0o600); err != nil {
			t.Fatal(err)
		}
		written(t, path, 2)
		lines, schema := read(t, path)
		text := strings.Join(lines, "\n")
		for _, want := range []string{`"step":0,`, `"name":"ünï"`, `"rank":null,"row":null`, `"rank":3,"row":1`,
			`"words":["a"]`, `"masked":true`} {
			if !strings.Contains(strings.ReplaceAll(text, ": ", ":"), want) {
				t.Errorf("%s lacks %s in %s", name, want, text)
			}
		}
		var kinds []string
		for _, f := range schema.Fields() {
			kinds = append(kinds, f.Type.String())
		}
		// Readers of Parquet name the element of a list, and say that it may be null, as they like.
		got := regexp.MustCompile(`<\w+: utf8.*?>`).ReplaceAllString(strings.Join(kinds, " "), "<utf8>")
		if got != "int64 utf8 float64 bool list<utf8> timestamp[us, tz=UTC] int64 int64" {
			t.Errorf("%s has columns of the types %s", name, got)
		}
		if names, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(names) > 0 {
			t.Errorf("%s left %v", name, names)
		}
	}
}

// TestManyRows: rows of several batches stay in order.
func TestManyRows(t *testing.T) {
	const n = 150_000
	for _, name := range []string{"rows.parquet", "rows.arrow"} {
		path := filepath.Join(t.TempDir(), name)
		written(t, path, n)
		if lines, _ := read(t, path); len(lines) != n {
			t.Errorf("%s has %d rows, want %d", name, len(lines), n)
		}
	}
}

// TestRefused: another ending, a failure while rows are added, and a number that int64 cannot hold leave no file.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	err := export.Check("rows.csv")
	if exit.Status(err) != exit.Usage || !strings.Contains(err.Error(), "write FILE.parquet or FILE.arrow") {
		t.Errorf("got %v", err)
	}
	failed := errors.New("the run has ended")
	path := filepath.Join(dir, "rows.parquet")
	err = export.Write(path, func(add func(row) error) error { return errors.Join(add(row{}), failed) })
	if exit.Status(err) != exit.Failed || !strings.Contains(err.Error(), failed.Error()) {
		t.Errorf("got %v", err)
	}
	err = export.Write(path, func(add func(row) error) error { return add(row{Step: 1 << 63}) })
	if err == nil || !strings.Contains(err.Error(), "column step: ") {
		t.Errorf("got %v", err)
	}
	err = export.Write(filepath.Join(dir, "none", "rows.arrow"), func(func(row) error) error { return nil })
	if exit.Status(err) != exit.Failed {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files were left: %v", left)
	}
}
