package sources_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/lengths"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
	"millrace/text/tokenize"
)

// lines returns n JSON lines. Every 50th is broken, some are blank, some documents are empty.
func lines(n int) []byte {
	var out bytes.Buffer
	for i := range n {
		switch {
		case i%50 == 49:
			out.WriteString("{\"text\": \"cut off\n")
		case i%20 == 3:
			out.WriteString(" \t\r\n")
		case i%20 == 5:
			out.WriteString("{\"text\": \"\"}\n")
		default:
			fmt.Fprintf(&out, "{\"text\": \"Document %d says %s\"}\n", i, strings.Repeat("hello wörld ", i%9))
		}
	}
	return out.Bytes()
}

func pack(t *testing.T, name string, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch filepath.Ext(name) {
	case ".gz":
		w = gzip.NewWriter(&out)
	case ".zst":
		w, err = zstd.NewWriter(&out)
	default:
		return text
	}
	if err == nil {
		_, err = w.Write(text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func put(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func gpt2(t *testing.T) *tokenize.Encoding {
	t.Helper()
	enc, err := tokenize.Load("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	return enc
}

// told is one document of a feed.
type told struct {
	id     string
	reject bool
	tokens string
}

// take reads n documents of a source's stream.
func take(t *testing.T, s *sources.Source, n int) (docs []told) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(1 << 20), Parallel: 2})
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	defer func() { cancel(); <-done }()
	f.Want(millrace.Ordinal(n))
	for len(docs) < n {
		b, err := f.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range b.Offers {
			docs = append(docs, told{id: s.Manifest().SampleName(o.ID), reject: o.Rejected})
			req := []feed.Request{{Ordinal: o.Ordinal, Length: o.Lengths.Tokens}}
			err := f.Fetch(ctx, req, func(_ int, tokens []uint32, _ string) error {
				docs[len(docs)-1].tokens = fmt.Sprint(tokens)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return docs
}

// TestSourceRemembers: a source gives the same stream without an index directory, with it, and with all its files
// damaged.
func TestSourceRemembers(t *testing.T) {
	enc := gpt2(t)
	for _, names := range [][]string{{"a.jsonl", "b.jsonl"}, {"a.jsonl.gz", "b.jsonl.zst"}} {
		dir, index := t.TempDir(), t.TempDir()
		for i, name := range names {
			put(t, dir, name, pack(t, name, lines(120+i)))
		}
		var log bytes.Buffer
		spec := sources.Spec{
			Name:      "web",
			Format:    jsonl.Format{},
			Base:      dir,
			Patterns:  []string{"*"},
			Field:     sources.Field{Text: "text"},
			Seed:      3,
			Epochs:    2,
			Tokenizer: enc,
			AddEOS:    true,
			IndexDir:  index,
		}
		var first []told
		for pass := range 4 {
			if pass == 3 {
				damageAll(t, index)
			}
			s, err := sources.Open(context.Background(), spec,
				sources.OpenOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			st, err := s.Stats(context.Background())
			if err != nil ||
				pass > 0 && pass < 3 && (!st.Counted && s.Manifest().Shuffle == millrace.Global || st.Known < 200) ||
				pass > 0 && pass < 3 && st.Counted && st.Known != st.Records {
				t.Fatalf("pass %d: stats %+v, %v", pass, st, err)
			}
			docs := take(t, s, 400)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if pass == 0 {
				first = docs
				tokens := enc.NewEncoder().Append(nil, []byte("Document 11 says hello wörld hello wörld "))
				if !strings.Contains(fmt.Sprint(docs), fmt.Sprint(tokens)[1:50]) {
					t.Fatal("a document differs from the tokenizer's output")
				}
			}
			if i := firstDifference(docs, first); i >= 0 {
				t.Fatalf("pass %d: document %d is %+v, was %+v", pass, i, docs[i], first[i])
			}
		}
		if !strings.Contains(log.String(), index) {
			t.Fatalf("damage to the index was not logged: %s", log.String())
		}
	}
}

func firstDifference(a, b []told) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func damageAll(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no index files: %v", err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 9; i < len(b); i += 13 {
			b[i] ^= 0x5a
		}
		put(t, dir, filepath.Base(path), b)
	}
}

// TestOpenNamesTheFault: the error of a faulty source names the file and the fault.
// TestFactsFollowTheFiles: a process learns the memory of the facts about the sources that are open.
func TestFactsFollowTheFiles(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.jsonl", i)), lines(3), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var facts []int64
	host := sources.NewHost(sources.HostOptions{Facts: func(bytes int64) { facts = append(facts, bytes) }})
	for _, pattern := range []string{"00.jsonl", "*.jsonl"} {
		s, err := sources.Open(t.Context(), sources.Spec{Name: "a", Format: jsonl.Format{}, Base: dir,
			Patterns: []string{pattern}, Field: sources.Field{Text: "text"}}, sources.OpenOptions{Host: host})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
	if len(facts) != 2 || facts[0] < 1000 || facts[1]-2*facts[0] < 19*100 {
		t.Errorf("facts %v, want those of one file, then of 20 more", facts)
	}
}

// TestTenBillionLengths: the cost of a file of lengths follows its lines, not its records.
func TestTenBillionLengths(t *testing.T) {
	dir := t.TempDir()
	text := "tokens,count\n5000,1000\n64,9000000000\n2048,999999000\n"
	if err := os.WriteFile(filepath.Join(dir, "a.csv"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := sources.Open(t.Context(), sources.Spec{Name: "a", Format: lengths.Format{}, Base: dir,
		Patterns: []string{"a.csv"}, PieceTokens: 2048}, sources.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s, err = s.InPieces(t.Context(), 2048); err != nil {
		t.Fatal(err)
	}
	got, err := s.Stats(t.Context())
	want := sources.Stats{Files: 1, Bytes: int64(len(text)), Records: 1e10, Counted: true, Known: 1e10, Longest: 5000,
		Tokens: 64*9e9 + 2048*999999000 + 5000*1000, Pieces: 1e10 + 2000}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if total := s.Global().Total(0); total != want.Pieces {
		t.Errorf("the order has %d pieces, want %d", total, want.Pieces)
	}
}

func TestOpenNamesTheFault(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.jsonl", lines(10))
	put(t, dir, "blank.jsonl", []byte("\n \n\t\r\n"))
	whole := pack(t, "x.zst", lines(500))
	put(t, dir, "short.jsonl.zst", whole[:len(whole)/2])
	for pattern, want := range map[string]string{
		"nothing*.jsonl":  "nothing*.jsonl",
		"blank.jsonl":     "source web: no records in 1 files",
		"missing.jsonl":   "missing.jsonl",
		"short.jsonl.zst": "short.jsonl.zst",
	} {
		s, err := sources.Open(
			context.Background(),
			sources.Spec{
				Name:      "web",
				Format:    jsonl.Format{},
				Base:      dir,
				Patterns:  []string{pattern},
				Field:     sources.Field{Text: "text"},
				Tokenizer: gpt2(t),
			},
			sources.OpenOptions{},
		)
		if err == nil { // damage to a stream shows when it is read
			f := feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(1 << 20)})
			f.Want(1000)
			err = f.Run(context.Background())
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "source web: ") {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
}

// TestOpenDeep: with every byte hashed, a change in the middle of a file is noticed, and progress reaches its total.
func TestOpenDeep(t *testing.T) {
	dir, index := t.TempDir(), t.TempDir()
	doc, err := json.Marshal(map[string]string{"text": strings.Repeat("middle ", 600_000)})
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.jsonl", doc)
	spec := sources.Spec{
		Name:      "web",
		Format:    jsonl.Format{},
		Base:      dir,
		Patterns:  []string{"."},
		Field:     sources.Field{Text: "text"},
		Tokenizer: gpt2(t),
		IndexDir:  index,
	}
	open := func() error {
		var seen []int64
		s, err := sources.Open(context.Background(), spec,
			sources.OpenOptions{Deep: true, Progress: func(done, total int64) { seen = append(seen, total-done) }})
		if err != nil {
			return err
		}
		if len(seen) > 0 &&
			(seen[len(seen)-1] != 0 || !slices.IsSortedFunc(seen, func(a, b int64) int { return int(b - a) })) {
			t.Errorf("progress left %v", seen)
		}
		return s.Close()
	}
	if err := errors.Join(open(), open()); err != nil {
		t.Fatal(err)
	}
	doc[len(doc)/2]++
	put(t, dir, "a.jsonl", doc)
	if err := open(); !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), "a.jsonl") {
		t.Fatalf("open of a changed file: %v", err)
	}
}
