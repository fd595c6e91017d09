package values_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/sources"
	"millrace/sources/format/arrow"
	"millrace/sources/format/parquet"
)

// TestFormats: each logical type has the value that the readers of its writers find, in every format and encoding.
func TestFormats(t *testing.T) {
	b, err := os.ReadFile("testdata/want.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]map[string][]json.RawMessage
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if len(want) < 17 {
		t.Fatalf("%d files", len(want))
	}
	for name, columns := range want {
		for column, rows := range columns {
			checkColumn(t, name, column, rows)
		}
	}
}

func checkColumn(t *testing.T, name, column string, want []json.RawMessage) {
	t.Helper()
	n := 0
	check := func(r sources.Record) error {
		got, err := json.Marshal(r.Others[0])
		var plain bytes.Buffer
		_ = json.Compact(&plain, want[r.Number])
		if n++; err != nil || r.Err != nil || !equalJSON(got, plain.Bytes()) {
			t.Errorf("%s: %s of row %d is %s (%v %v), want %s", name, column, r.Number, got, r.Err, err, plain.Bytes())
		}
		return nil
	}
	s := open(t, name, sources.Field{Others: []string{column}})
	if err := s.Scan(context.Background(), 0, check); err != nil || n != len(want) {
		t.Errorf("%s: %s: %d rows, %v", name, column, n, err)
	}
	if err := s.Read(context.Background(), []uint64{uint64(len(want) - 1)}, check); err != nil {
		t.Errorf("%s: %s: %v", name, column, err)
	}
}

// equalJSON compares two compact texts. Digits are exact, but 1e-07 and 1e-7 are one number.
func equalJSON(a, b []byte) bool {
	return bytes.Equal(a, bytes.ReplaceAll(b, []byte("e-07"), []byte("e-7")))
}

func open(t *testing.T, name string, field sources.Field) sources.Shard {
	t.Helper()
	f, err := sources.OSFS().Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	var format sources.Format = arrow.Format{}
	if strings.HasSuffix(name, ".parquet") {
		format = parquet.Format{}
	}
	s, err := format.Open(context.Background(), f, field, sources.Limits{}.Resolved(), nil)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}
