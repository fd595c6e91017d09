package sources_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/csv"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/parquet"
	"millrace/sources/format/parts/fields"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
)

// folders writes files below a new directory.
func folders(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, dir, name, b)
	}
	return dir
}

// byteEncoding has one token for each byte.
type byteEncoding struct{}

func (byteEncoding) Append(dst []uint32, text []byte, _ func()) []uint32 {
	for _, c := range text {
		dst = append(dst, uint32(c))
	}
	return dst
}
func (byteEncoding) BOS() (uint32, bool)   { return 0, false }
func (byteEncoding) EOS() (uint32, bool)   { return 0, false }
func (byteEncoding) Fingerprint() [16]byte { return [16]byte{7} }

// documents reads one pass of a source. It returns the documents that the own filter keeps with their fields, and the
// reasons of bad records, sorted, and the counts.
func documents(t *testing.T, spec sources.Spec) ([]string, sources.Stats) {
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
	var out []string
	for over := false; !over; {
		b, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		over = b.End
		var reqs []feed.Request
		for _, o := range b.Offers {
			switch {
			case o.Rejected:
				out = append(out, "bad: "+o.Quarantine.Reason)
			case o.Refused&filter.Own == 0:
				reqs = append(reqs, feed.Request{Ordinal: o.Ordinal, Length: o.Lengths.Tokens})
			}
		}
		if err := f.Fetch(ctx, reqs, func(i int, tokens []uint32, fields string) error {
			var text []byte
			for _, id := range tokens {
				text = append(text, byte(id))
			}
			out = append(out, strings.TrimSpace(string(text)+" "+fields))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	st, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out, st
}

func filterOf(t *testing.T, text string) *filter.Set {
	if text == "" {
		return nil
	}
	return set(t, text)
}

// TestConstantsAreFields: a folder `key=value` gives the records of its files a field for texts, templates, filters and
// `fields`, in every kind of format. Files of equal bytes have the values of their own folders, also from kept lengths.
func TestConstantsAreFields(t *testing.T) {
	rows, err := os.ReadFile("testdata/constants/rows.parquet") // text: one, two
	if err != nil {
		t.Fatal(err)
	}
	lines := []byte("{\"text\": \"one\"}\n{\"text\": \"two\"}\n")
	formats := map[string]struct {
		format sources.Format
		bytes  []byte
	}{
		"a.jsonl":    {jsonl.Format{}, lines},
		"a.jsonl.gz": {jsonl.Format{}, pack(t, "a.jsonl.gz", lines)},
		"a.csv":      {csv.Format{}, []byte("text\none\ntwo\n")},
		"a.parquet":  {parquet.Format{}, rows},
	}
	for name, f := range formats {
		dir, index := folders(t, map[string][]byte{"lang=en/" + name: f.bytes, "lang=d%C3%A9/" + name: f.bytes,
			"lang=__HIVE_DEFAULT_PARTITION__/" + name: f.bytes}), t.TempDir()
		for _, c := range []struct {
			template, filter string
			text             string
			passed           []string
			want             []string
		}{
			{template: "{lang}: {text}", want: []string{"bad: field \"lang\" is absent; the record has text",
				"bad: field \"lang\" is absent; the record has text", "dé: one", "dé: two", "en: one", "en: two"}},
			{text: "text", filter: `lang == "en"`, want: []string{"one", "two"}},
			{text: "text", filter: `lang == nil`, passed: []string{"lang"},
				want: []string{`one {"lang":null}`, `two {"lang":null}`}},
			{text: "text", filter: `lang != nil && text == "two"`, passed: []string{"lang"},
				want: []string{`two {"lang":"dé"}`, `two {"lang":"en"}`}},
			{text: "lang", filter: `text == "two" && lang != nil`, want: []string{"dé", "en"}},
		} {
			spec := sources.Spec{Name: "web", Format: f.format, Base: dir, Patterns: []string{"."}, Seed: 3, Epochs: 1,
				Field: sources.Field{Text: c.text}, Passed: c.passed, Tokenizer: byteEncoding{}, IndexDir: index,
				Filters: filterOf(t, c.filter)}
			if c.template != "" {
				tmpl, err := fields.ParseTemplate(c.template)
				if err != nil {
					t.Fatal(err)
				}
				spec.Maker = fields.NewTemplateMaker(tmpl, sources.NewEncoder(byteEncoding{}, false, false), false)
			}
			first, stats := documents(t, spec)
			again, known := documents(t, spec)
			if !slices.Equal(first, c.want) || !slices.Equal(again, first) {
				t.Errorf("%s, %+v: got %q, then %q", name, c, first, again)
			}
			if stats.Known != 6 || stats != known {
				t.Errorf("%s, %+v: stats are %+v, then %+v", name, c, stats, known)
			}
		}
	}
}

// TestARecordsOwnValueComesFirst: also if only some records have one.
func TestARecordsOwnValueComesFirst(t *testing.T) {
	dir := folders(t, map[string][]byte{"lang=en/a.jsonl": []byte("{\"text\": \"a\", \"lang\": \"fr\"}\n" +
		"{\"text\": \"b\"}\n{\"text\": \"c\", \"lang\": null}\n{\"text\": \"d\", \"lang\": 5}\n{\n")})
	got, _ := documents(t, sources.Spec{Name: "web", Format: jsonl.Format{}, Base: dir, Patterns: []string{"."},
		Epochs: 1, Field: sources.Field{Text: "text"}, Passed: []string{"lang"}, Tokenizer: byteEncoding{}})
	if want := []string{`a {"lang":"fr"}`, `b {"lang":"en"}`,
		"bad: invalid JSON at byte 1 of the line: want a key in quotes", `c {"lang":"en"}`,
		`d {"lang":5}`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// TestOnlyUsedConstantsCount: the identity of a source changes with a key that it names, not with others.
func TestOnlyUsedConstantsCount(t *testing.T) {
	prints := map[string]millrace.Digest{}
	for _, filter := range []string{"", `lang == "en"`} {
		for _, root := range []string{"a", "a/lang=en"} {
			base := folders(t, map[string][]byte{"a/lang=en/x.jsonl": []byte("{\"text\": \"a\"}\n")})
			s, err := sources.Open(t.Context(), sources.Spec{Name: "web", Format: jsonl.Format{}, Base: base,
				Patterns: []string{"a/**/*.jsonl"}, Root: root, Epochs: 1, Field: sources.Field{Text: "text"},
				Tokenizer: byteEncoding{}, Filters: filterOf(t, filter)}, sources.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			prints[filter+" below "+root] = s.Manifest().Fingerprint
			s.Close()
		}
	}
	if prints[` below a/lang=en`] != prints[`lang == "en" below a/lang=en`] ||
		prints[` below a`] == prints[`lang == "en" below a`] {
		t.Errorf("got %v", prints)
	}
}

// TestAKeyOfSomeFolders: a column that a document needs may be missing where a folder has it.
func TestAKeyOfSomeFolders(t *testing.T) {
	text := []byte("text\none\n")
	spec := sources.Spec{Name: "web", Format: csv.Format{}, Patterns: []string{"."}, Epochs: 1,
		Field: sources.Field{Text: "lang"}, Tokenizer: byteEncoding{}}
	spec.Base = folders(t, map[string][]byte{"lang=en/a.csv": text, "b.csv": []byte("text,lang\none,fr\n")})
	if got, _ := documents(t, spec); !slices.Equal(got, []string{"en", "fr"}) {
		t.Errorf("got %q", got)
	}
	spec.Base = folders(t, map[string][]byte{"lang=en/a.csv": text, "b.csv": text})
	if _, err := sources.Open(t.Context(), spec, sources.OpenOptions{}); err == nil ||
		!strings.Contains(err.Error(), `b.csv has no column "lang"`) {
		t.Errorf("got %v", err)
	}
}

// TestTablesThatMoveOn: the cure of a Delta table that was appended to or rewritten is the version that the run began
// with, which leads back to the same manifest.
func TestTablesThatMoveOn(t *testing.T) {
	manifest := func(version *uint64) *millrace.Manifest {
		s, err := sources.Open(t.Context(), sources.Spec{Name: "web", Format: parquet.Format{},
			Base: "find/delta/testdata", Patterns: []string{"plain"}, Epochs: 1,
			Field: sources.Field{Text: "text"}, Tokenizer: byteEncoding{}, Version: version}, sources.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Manifest()
	}
	at := func(n uint64) *millrace.Manifest { return manifest(&n) }
	const cure = "write its version of that time as `version` of the source"
	// of a rewritten table, the file whose name comes first is named
	for was, want := range map[uint64]string{5: "is new; put it", 1: "missing", 3: "missing"} {
		err := sources.Compare(at(was), manifest(nil))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cure) {
			t.Errorf("version %d: got %v, want %s", was, err, want)
		}
		if err := sources.Compare(at(was), at(was)); err != nil {
			t.Error(err)
		}
	}
	if err := sources.Compare(at(6), manifest(nil)); err != nil {
		t.Error(err)
	}
}
