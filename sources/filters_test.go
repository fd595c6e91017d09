package sources_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/text"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
)

// graded returns records with a quality from 0 to 9. Every 40th has none, every 50th is no JSON.
func graded(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		switch {
		case i%50 == 7:
			b.WriteString("{\"text\n")
		case i%40 == 9:
			fmt.Fprintf(&b, "{\"text\": \"Record %d\", \"meta\": {}}\n", i)
		default:
			fmt.Fprintf(&b, "{\"text\": \"Record %d says %s\", \"meta\": {\"quality\": %d}}\n", i,
				bytes.Repeat([]byte("so "), i%30), i%10)
		}
	}
	return b.Bytes()
}

func set(t *testing.T, texts ...string) *filter.Set {
	t.Helper()
	var all []*filter.Filter
	for _, text := range texts {
		f, err := filter.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	s, err := filter.NewSet(all...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// offersOf reads one pass of a source, fetches the documents that its own filter keeps, and returns the offers by
// record.
func offersOf(t *testing.T, spec sources.Spec) (map[millrace.SampleID]feed.Offer, sources.Stats) {
	t.Helper()
	s, err := sources.Open(t.Context(), spec, sources.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(1 << 20)})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); <-ended }()
	f.Want(1 << 20)
	out := map[millrace.SampleID]feed.Offer{}
	for over := false; !over; {
		b, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		over = b.End
		var reqs []feed.Request
		for _, o := range b.Offers {
			out[o.ID] = o
			if !o.Rejected && o.Refused&1 == 0 {
				reqs = append(reqs, feed.Request{Ordinal: o.Ordinal, Length: o.Lengths.Tokens})
			}
		}
		served := 0
		if err := f.Fetch(ctx, reqs, func(i int, tokens []uint32, _ string) error {
			served++
			if len(tokens) != int(reqs[i].Length) {
				return fmt.Errorf("%d tokens, want %d", len(tokens), reqs[i].Length)
			}
			return nil
		}); err != nil || served != len(reqs) {
			t.Fatalf("%d of %d served: %v", served, len(reqs), err)
		}
	}
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out, st
}

// TestFiltersAreOffered: the bits are those of the expressions, in every order, when they are computed and when they
// are kept. Each set of filters keeps its own answers. A record on which a filter fails is bad for that source alone.
func TestFiltersAreOffered(t *testing.T) {
	for _, name := range []string{"a.jsonl", "a.jsonl.gz"} {
		dir, index := t.TempDir(), t.TempDir()
		put(t, dir, name, pack(t, name, graded(500)))
		spec := sources.Spec{
			Name:      "web",
			Format:    jsonl.Format{},
			Base:      dir,
			Patterns:  []string{"*"},
			Field:     sources.Field{Text: "text"},
			Seed:      3,
			Epochs:    1,
			Tokenizer: gpt2(t),
			IndexDir:  index,
		}
		for _, c := range []struct {
			filters *filter.Set
			bits    func(quality int, tokens uint32) uint64
			bad     bool // records without quality are bad
		}{
			{set(t, "(meta.quality ?? 0) > 4", "tokens < 20"),
				func(q int, n uint32) uint64 { return bit(q <= 4) | bit(n >= 20)<<1 }, false},
			{nil, func(int, uint32) uint64 { return 0 }, false},
			{set(t, "(meta.quality ?? 9) > 4"), func(q int, _ uint32) uint64 { return bit(q <= 4 && q >= 0) }, false},
			{set(t, "meta.quality > 4"), func(q int, _ uint32) uint64 { return bit(q <= 4) }, true},
		} {
			spec.Filters = c.filters
			for pass := range 3 {
				offers, st := offersOf(t, spec)
				kept := uint64(0)
				for id, o := range offers {
					i, none := int(id.Record), id.Record%40 == 9
					quality := i % 10
					if none {
						quality = -1
					}
					if bad := i%50 == 7 || c.bad && none; bad != o.Rejected {
						t.Fatalf("%s, filters %q: record %d is rejected: %v", name, c.filters.Texts(), i, o.Rejected)
					} else if want := c.bits(quality, o.Lengths.Tokens); !bad && o.Refused != want {
						t.Fatalf("%s, filters %q, pass %d: record %d is refused by %b, want %b",
							name, c.filters.Texts(), pass, i, o.Refused, want)
					} else if !bad && want&1 == 0 {
						kept += uint64(o.Lengths.Tokens)
					}
				}
				if len(offers) != 500 || pass > 0 && (st.Known != 500 || st.Tokens != kept) {
					t.Fatalf("%s, filters %q, pass %d: %d offers, kept %d tokens, %+v", name, c.filters.Texts(), pass,
						len(offers), kept, st)
				}
			}
		}
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// TestFiltersOfNames: equal files share their lengths. An answer that follows from a file's name is each file's own,
// also when the lengths are kept.
func TestFiltersOfNames(t *testing.T) {
	dir, index := t.TempDir(), t.TempDir()
	for _, name := range []string{"src/a.py", "vendor/a.py", "src/b.go"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, dir, name, []byte("pass\n"))
	}
	spec := sources.Spec{Name: "code", Format: text.Format{}, Base: dir, Patterns: []string{"."}, Epochs: 1,
		Field: sources.Field{Text: "text"}, Tokenizer: gpt2(t), IndexDir: index,
		Filters: set(t, `path startsWith "src/" && language == "python"`)}
	for pass := range 3 {
		offers, _ := offersOf(t, spec)
		for id, o := range offers {
			if wants := id.Shard == 0; o.Rejected || (o.Refused&1 == 0) != wants {
				t.Errorf("pass %d: shard %d is refused by %b, rejected: %v", pass, id.Shard, o.Refused, o.Rejected)
			}
		}
		if len(offers) != 3 {
			t.Errorf("pass %d: %d offers, want 3", pass, len(offers))
		}
	}
}
