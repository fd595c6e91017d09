package feed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	pq "github.com/parquet-go/parquet-go"
	"golang.org/x/sys/unix"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/parquet"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
	"millrace/text/tokenize"
)

// goCorpus returns the sources of the Go tree as documents of up to 4000 bytes, some 24 MB.
func goCorpus(b *testing.B) (docs []string, size int) {
	b.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || size > 24e6 {
			return err
		}
		text, err := os.ReadFile(path)
		for s := strings.ToValidUTF8(string(text), ""); len(s) > 0; {
			n := min(len(s), 4000)
			docs, size, s = append(docs, strings.ToValidUTF8(s[:n], "")), size+n, s[n:]
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return docs, size
}

// The corpus has several files and is read several times, because the first pass fills the encoders' caches.
const (
	benchFiles  = 4
	benchPasses = 4
)

func writeLines(b *testing.B, docs []string, suffix string, pack func([]byte) []byte) string {
	b.Helper()
	dir := b.TempDir()
	for k := range benchFiles {
		var out bytes.Buffer
		for i := k; i < len(docs); i += benchFiles {
			line, err := json.Marshal(map[string]any{"id": i, "text": docs[i]})
			if err != nil {
				b.Fatal(err)
			}
			out.Write(append(line, '\n'))
		}
		name := filepath.Join(dir, fmt.Sprintf("part-%d.jsonl%s", k, suffix))
		if err := os.WriteFile(name, pack(out.Bytes()), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

func writeParquet(b *testing.B, docs []string) string {
	b.Helper()
	dir := b.TempDir()
	for k := range benchFiles {
		var rows []benchRow
		for i := k; i < len(docs); i += benchFiles {
			rows = append(rows, benchRow{int64(i), docs[i]})
		}
		name := filepath.Join(dir, fmt.Sprintf("part-%d.parquet", k))
		if err := pq.WriteFile(name, rows, pq.Compression(&pq.Zstd)); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

type benchRow struct {
	ID   int64  `parquet:"id"`
	Text string `parquet:"text"`
}

// BenchmarkFeed reads a corpus in the way of a loader, as offers and tokens. MB/s and Mtok/s are of text.
func BenchmarkFeed(b *testing.B) {
	docs, size := goCorpus(b)
	enc, err := tokenize.Load("gpt2")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("tokenizer alone", func(b *testing.B) {
		e, tokens, before := enc.NewEncoder(), 0, cpuSeconds(b)
		var buf []uint32
		for b.Loop() {
			for _, d := range docs {
				buf = e.Append(buf[:0], []byte(d))
				tokens += len(buf)
			}
		}
		report(b, size, tokens, cpuSeconds(b)-before)
	})
	zst, err := zstd.NewWriter(nil)
	if err != nil {
		b.Fatal(err)
	}
	whole := func(text []byte) []byte { return zst.EncodeAll(text, nil) }
	frames := func(text []byte) (out []byte) {
		for ; len(text) > 0; text = text[min(1<<20, len(text)):] {
			out = zst.EncodeAll(text[:min(1<<20, len(text))], out)
		}
		return out
	}
	plain := writeLines(b, docs, "", func(text []byte) []byte { return text })
	for _, c := range []struct {
		name    string
		dir     string
		format  sources.Format
		shuffle millrace.Shuffle
	}{
		{"jsonl/none", plain, jsonl.Format{}, millrace.InFileOrder},
		{"jsonl/blocks", plain, jsonl.Format{}, millrace.Blocks},
		{"jsonl/global", plain, jsonl.Format{}, millrace.Global},
		{"jsonl.zst of one frame/blocks", writeLines(b, docs, ".zst", whole), jsonl.Format{}, millrace.Global},
		{"jsonl.zst of many frames/global", writeLines(b, docs, ".zst", frames), jsonl.Format{}, millrace.Global},
		{"parquet/global", writeParquet(b, docs), parquet.Format{Pages: parquet.NewPages(8 << 20)}, millrace.Global},
		{"parquet/blocks", writeParquet(b, docs), parquet.Format{}, millrace.Blocks},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			tokens, before := 0, cpuSeconds(b)
			for b.Loop() {
				tokens += readOnce(b, sources.Spec{
					Name:      "web",
					Format:    c.format,
					Base:      c.dir,
					Patterns:  []string{"."},
					Field:     sources.Field{Text: "text"},
					Shuffle:   c.shuffle,
					Epochs:    benchPasses,
					Tokenizer: enc,
					AddEOS:    true,
				})
			}
			report(b, benchPasses*size, tokens, cpuSeconds(b)-before)
		})
	}
}

// BenchmarkVerify reads a corpus with known lengths, with each way to compare it with its first reading.
func BenchmarkVerify(b *testing.B) {
	docs, size := goCorpus(b)
	enc, err := tokenize.Load("gpt2")
	if err != nil {
		b.Fatal(err)
	}
	spec := sources.Spec{
		Name:      "web",
		Format:    jsonl.Format{},
		Base:      writeLines(b, docs, "", func(text []byte) []byte { return text }),
		Patterns:  []string{"."},
		Field:     sources.Field{Text: "text"},
		Epochs:    benchPasses,
		Tokenizer: enc,
		AddEOS:    true,
		IndexDir:  b.TempDir(),
	}
	readOnce(b, spec)
	for _, spec.Verify = range []sources.Verify{sources.VerifyOff, sources.VerifyFiles, sources.VerifyTokens} {
		b.Run(string(spec.Verify), func(b *testing.B) {
			tokens, before := 0, cpuSeconds(b)
			for b.Loop() {
				tokens += readOnce(b, spec)
			}
			report(b, benchPasses*size, tokens, cpuSeconds(b)-before)
		})
	}
}

// cpuSeconds returns the processor time of this process, which a busy machine changes less than the clock.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// report reports throughput by the clock and by core.
func report(b *testing.B, size, tokens int, cpu float64) {
	seconds := b.Elapsed().Seconds()
	b.ReportMetric(float64(size)*float64(b.N)/1e6/seconds, "MB/s")
	b.ReportMetric(float64(tokens)/1e6/seconds, "Mtok/s")
	b.ReportMetric(float64(tokens)/1e6/cpu, "Mtok/core-s")
}

// readOnce reads a source's whole stream in steps of 500 documents and returns its tokens.
func readOnce(b *testing.B, spec sources.Spec) (tokens int) {
	ctx, cancel := context.WithCancel(context.Background())
	s, err := sources.Open(ctx, spec, sources.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	f := feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(512 << 20)})
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	defer func() { cancel(); <-done }()
	var reqs []feed.Request
	seen := millrace.Ordinal(0)
	for end := false; !end; {
		f.Want(seen + 8000)
		batch, err := f.Next(ctx)
		if err != nil {
			b.Fatal(err)
		}
		reqs = reqs[:0]
		for _, o := range batch.Offers {
			reqs = append(reqs, feed.Request{Ordinal: o.Ordinal, Length: o.Lengths.Tokens})
		}
		err = f.Fetch(ctx, reqs, func(_ int, t []uint32, _ string) error { tokens += len(t); return nil })
		if err != nil {
			b.Fatal(err)
		}
		seen += millrace.Ordinal(len(batch.Offers))
		f.Release(seen)
		end = batch.End
	}
	return tokens
}
