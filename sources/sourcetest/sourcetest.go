// Package sourcetest has the contract of all formats as tests. Each format runs them over fixtures of an independent
// writer.
package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
)

// New makes the format under test over a file system.
type New func(sources.FS) sources.Format

// Want is one expected record: text, tokens, or a bad sample whose reason contains Bad.
type Want struct {
	Text   string
	Tokens []uint32
	Others []any // values of Field.Others
	Bad    string
}

// Fixture is one shard with its expected records.
type Fixture struct {
	Name     string
	Files    Files  // the shard and its companions
	Path     string // of the shard; may be left out if there is one file
	Field    sources.Field
	Limits   sources.Limits // the suite resolves them
	Want     []Want
	Seekable bool
	// checksums cover every byte that decides content: Damage then fails if a flipped bit changes a record
	Checked bool
}

func (f Fixture) path() string {
	if f.Path != "" {
		return f.Path
	}
	for p := range f.Files {
		return p
	}
	return ""
}

// open opens the fixture's shard, which the test closes.
func (f Fixture) open(ctx context.Context, fs sources.FS, mk New, index []byte) (sources.Shard, error) {
	file, err := fs.Open(f.path())
	if err != nil {
		return nil, err
	}
	return mk(fs).Open(ctx, file, f.Field, f.Limits.Resolved(), index)
}

// record is a record with memory of its own.
type record struct {
	sources.Record
	Why string
}

func keep(r sources.Record) record {
	out := record{Record: r}
	out.Text, out.Tokens, out.Others = bytes.Clone(r.Text), slices.Clone(r.Tokens), slices.Clone(r.Others)
	if r.Err != nil {
		out.Why, out.Err = r.Err.Error(), nil
		if !errors.Is(r.Err, millrace.ErrBadSample) {
			out.Why = "not a bad sample: " + out.Why
		}
	}
	return out
}

func (r record) String() string {
	return fmt.Sprintf("#%d at %d (%d bytes): %.60q %v %#v %s", r.Number, r.Offset, r.Raw, r.Text, r.Tokens, r.Others,
		r.Why)
}

func (r record) equal(o record) bool {
	return r.Number == o.Number && r.Offset == o.Offset && r.Raw == o.Raw && r.Why == o.Why &&
		bytes.Equal(r.Text, o.Text) &&
		slices.Equal(r.Tokens, o.Tokens) && reflect.DeepEqual(r.Others, o.Others)
}

// scan collects the records of Scan.
func scan(ctx context.Context, s sources.Shard, from uint64) ([]record, error) {
	var out []record
	err := s.Scan(ctx, from, func(r sources.Record) error {
		out = append(out, keep(r))
		return nil
	})
	return out, err
}

// read collects the records of Read.
func read(ctx context.Context, s sources.Shard, numbers []uint64) ([]record, error) {
	var out []record
	err := s.Read(ctx, numbers, func(r sources.Record) error {
		out = append(out, keep(r))
		return nil
	})
	return out, err
}

func (f Fixture) check(t *testing.T, got []record) {
	t.Helper()
	if len(got) != len(f.Want) {
		t.Fatalf("got %d records, want %d", len(got), len(f.Want))
	}
	last := int64(-1)
	for i, g := range got {
		w := f.Want[i]
		ok := g.Number == uint64(i) && g.Raw >= 0 && (g.Offset == -1 || g.Offset >= last)
		if w.Bad != "" {
			ok = ok && strings.Contains(g.Why, w.Bad) && g.Text == nil && g.Tokens == nil &&
				!strings.HasPrefix(g.Why, "not a bad sample")
		} else {
			ok = ok && g.Why == "" && string(g.Text) == w.Text && slices.Equal(g.Tokens, w.Tokens) &&
				(g.Text != nil) == (w.Tokens == nil && f.Field.Text != "")
		}
		if w.Others != nil {
			ok = ok && reflect.DeepEqual(Maps(g.Others), Maps(w.Others))
		}
		if !ok {
			t.Errorf("record %d: got %v, want %.60q %v %#v %s", i, g, w.Text, w.Tokens, w.Others, w.Bad)
		}
		last = g.Offset
	}
}

func same(t *testing.T, what string, got, want []record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d records, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !got[i].equal(want[i]) {
			t.Fatalf("%s: got %v, want %v", what, got[i], want[i])
		}
	}
}

// sample returns 0 … n-1 if they are few, else the first, the last and about between numbers.
func sample(n, between int) []int {
	step, edge := max(1, n/between), min(2, between)
	var out []int
	for i := 0; i < n; i++ {
		if i < edge || i >= n-edge || i%step == 0 {
			out = append(out, i)
		}
	}
	return out
}

// sampleOf samples records: fewer if one pass over them costs more.
func sampleOf(all []record) []int {
	raw := int64(0)
	for _, r := range all {
		raw += r.Raw
	}
	return sample(len(all), int(max(1, min(16, (1<<20)/(raw+1)))))
}

// Open opens and scans a fixture. It returns the first error. A record that differs from the expected one is an error.
func Open(t testing.TB, mk New, f Fixture) error {
	s, err := f.open(t.Context(), f.Files, mk, nil)
	if err != nil {
		return err
	}
	n := 0
	err = s.Scan(t.Context(), 0, func(r sources.Record) error {
		if n < len(f.Want) {
			if w := f.Want[n]; w.Bad == "" && (r.Err != nil || string(r.Text) != w.Text) ||
				w.Bad != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), w.Bad)) {
				return fmt.Errorf("record %d: got %v, want %.60q %s", n, keep(r), w.Text, w.Bad)
			}
		}
		n++
		return nil
	})
	if err == nil && n != len(f.Want) {
		return fmt.Errorf("got %d records, want %d", n, len(f.Want))
	}
	return err
}
