package feed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/read/filter"
)

// fakeFormat has one record a line. A file with "stream" in its name can only be streamed. With counted, counts are
// known without an index. A line "bad" is a bad record; at a line "panic" the decoder panics.
type fakeFormat struct {
	counted bool
	lengths bool // records are tokens: the bytes of the line
	pieces  bool // and their lengths and parts are read without the rest
	// decoded, if set, gets the bytes of each record that is handed out.
	decoded func(bytes int)
}

func (fakeFormat) Name() string { return "jsonl" }

func (ff fakeFormat) Open(_ context.Context, f sources.File, _ sources.Field, _ sources.Limits,
	index []byte) (sources.Shard, error) {
	data := make([]byte, f.Size())
	if err := sources.ReadFull(f, data, 0); err != nil {
		return nil, err
	}
	sh := &fakeShard{fakeFormat: ff, f: f, name: filepath.Base(f.Name()), indexed: index != nil}
	for off := 0; off < len(data); {
		n := bytes.IndexByte(data[off:], '\n')
		if n < 0 {
			n = len(data) - off
		}
		sh.offs = append(sh.offs, int64(off))
		sh.lens = append(sh.lens, n)
		off += n + 1
	}
	if ff.pieces {
		return fakePieces{sh}, nil
	}
	if ff.lengths {
		return fakeTokens{sh}, nil
	}
	return sh, nil
}

type fakeShard struct {
	fakeFormat
	f       sources.File
	name    string
	indexed bool
	offs    []int64
	lens    []int
}

type fakeTokens struct{ *fakeShard }

func (s fakeTokens) Length(record uint64) uint32 { return uint32(s.lens[record]) }

// fakePieces knows lengths and reads parts of documents.
type fakePieces struct{ *fakeShard }

func (s fakePieces) Length(record uint64) (uint32, bool) { return uint32(s.lens[record]), true }

func (s fakePieces) ReadPieces(_ context.Context, parts []sources.DocumentPart, fn func(sources.Record) error) error {
	for _, part := range parts {
		r, err := s.record(part.Record)
		if err != nil {
			return err
		}
		r.Start, r.Total = part.Start, uint32(len(r.Tokens))
		r.Tokens = r.Tokens[min(part.Start, r.Total):min(uint64(part.Start)+uint64(part.Length), uint64(r.Total))]
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *fakeShard) Count() (uint64, bool) {
	return uint64(len(s.offs)), s.counted || s.indexed
}
func (s *fakeShard) Seekable() bool { return !strings.Contains(s.name, "stream") }
func (s *fakeShard) Close() error   { return nil }

func (s *fakeShard) Index(_ context.Context, progress func(int64)) ([]byte, error) {
	progress(s.f.Size())
	return binary.LittleEndian.AppendUint64(nil, uint64(len(s.offs))), nil
}

func (s *fakeShard) record(i uint64) (sources.Record, error) {
	line := make([]byte, s.lens[i])
	if err := sources.ReadFull(s.f, line, s.offs[i]); err != nil {
		return sources.Record{}, err
	}
	r := sources.Record{Number: i, Offset: s.offs[i], Raw: int64(s.lens[i]) + 1}
	switch {
	case string(line) == "bad":
		r.Err = millrace.Errorf(millrace.ErrBadSample, "read record: it is bad")
	case string(line) == "panic":
		panic("nil map")
	case s.lengths:
		for _, b := range line {
			r.Tokens = append(r.Tokens, uint32(b))
		}
	default:
		r.Text = line
	}
	return r, nil
}

func (s *fakeShard) Scan(ctx context.Context, from uint64, fn func(sources.Record) error) error {
	for i := from; i < uint64(len(s.offs)); i++ {
		if err := s.hand(ctx, i, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *fakeShard) Read(ctx context.Context, numbers []uint64, fn func(sources.Record) error) error {
	if _, counted := s.Count(); !counted || !s.Seekable() {
		return millrace.Errorf(millrace.ErrInvalid, "read records of %s: not at random", s.name)
	}
	for _, i := range numbers {
		if err := s.hand(ctx, i, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *fakeShard) hand(ctx context.Context, i uint64, fn func(sources.Record) error) error {
	r, err := s.record(i)
	if err != nil {
		return err
	}
	if s.decoded != nil {
		s.decoded(s.lens[i])
	}
	err = fn(r)
	for b := range r.Text {
		r.Text[b] = '!' // a record's memory is valid only until fn returns
	}
	for t := range r.Tokens {
		r.Tokens[t] = 1 << 30
	}
	if err != nil {
		return err
	}
	return ctx.Err()
}

// byteTokens makes a token of every byte. It panics at "boom" in a text.
type byteTokens struct{}

func (byteTokens) Append(dst []uint32, text []byte, _ func()) []uint32 {
	if bytes.Contains(text, []byte("boom")) {
		panic("index out of range")
	}
	for _, b := range text {
		dst = append(dst, uint32(b))
	}
	return dst
}

func (byteTokens) BOS() (uint32, bool)   { return 0, false }
func (byteTokens) EOS() (uint32, bool)   { return fakeEOS, true }
func (byteTokens) Fingerprint() [16]byte { return [16]byte{1} }

// sameTokens is a tokenizer with the fingerprint of byteTokens.
type sameTokens func(text []byte) []uint32

func (f sameTokens) Append(dst []uint32, text []byte, _ func()) []uint32 {
	return append(dst, f(text)...)
}
func (sameTokens) BOS() (uint32, bool)   { return 0, false }
func (sameTokens) EOS() (uint32, bool)   { return fakeEOS, true }
func (sameTokens) Fingerprint() [16]byte { return [16]byte{1} }

const fakeEOS = 256

// corpus is the content of a test's source: records by shard, in name order.
type corpus struct {
	names  []string
	shards [][]string
}

// randomCorpus makes shards of random sizes, some of them empty.
func randomCorpus(seed uint64, shards, most int) corpus {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var c corpus
	for i := range shards {
		var lines []string
		for r := range rnd.IntN(most + 1) {
			lines = append(lines, fmt.Sprintf("s%d r%d ", i, r)+strings.Repeat("x", rnd.IntN(40)))
		}
		c.add(fmt.Sprintf("part-%03d.jsonl", i), lines...)
	}
	return c
}

func (c *corpus) add(name string, lines ...string) {
	c.names = append(c.names, name)
	c.shards = append(c.shards, lines)
}

func (c *corpus) total() (n int) {
	for _, s := range c.shards {
		n += len(s)
	}
	return n
}

func (c *corpus) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range c.names {
		text := ""
		if len(c.shards[i]) > 0 {
			text = strings.Join(c.shards[i], "\n") + "\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// fixture has the settings of a test's source.
type fixture struct {
	format    fakeFormat
	shuffle   millrace.Shuffle
	epochs    uint32
	limit     int64 // block bytes
	fs        sources.FS
	index     string            // index directory; empty: nothing is kept
	tokenizer sources.Tokenizer // default: byteTokens
	verify    sources.Verify
	sample    int64 // most bytes of a record
	filters   *filter.Set
}

func (x fixture) open(t testing.TB, dir string) *sources.Source {
	t.Helper()
	s, err := x.tryOpen(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (x fixture) tryOpen(dir string) (*sources.Source, error) {
	spec := sources.Spec{
		Name:     "web",
		Format:   x.format,
		Base:     dir,
		Patterns: []string{"."},
		Shuffle:  x.shuffle,
		Seed:     7,
		Epochs:   x.epochs,
		IndexDir: x.index,
		Verify:   x.verify,
		Limits:   sources.Limits{SampleBytes: x.sample},
		Filters:  x.filters,
	}
	if !x.format.lengths {
		spec.Tokenizer, spec.AddEOS = byteTokens{}, true
		if x.tokenizer != nil {
			spec.Tokenizer = x.tokenizer
		}
	}
	s, err := sources.Open(context.Background(), spec, sources.OpenOptions{FS: x.fs})
	if err == nil && s.Blocks() != nil && x.limit > 0 {
		s.Blocks().Limit = x.limit
	}
	return s, err
}

// flakyFS fails the first `times` reads at each offset of a file, or all if times is negative.
type flakyFS struct {
	times int
	fail  func(path string, off int64) bool
}

type flakyFile struct {
	sources.OpenFile
	fs *flakyFS
	mu sync.Mutex
	n  map[int64]int
}

func (*flakyFS) Identity(path string) (identity.File, error) { return sources.OSFS().Identity(path) }

func (f *flakyFS) Open(path string) (sources.OpenFile, error) {
	o, err := sources.OSFS().Open(path)
	if err != nil {
		return nil, err
	}
	return &flakyFile{OpenFile: o, fs: f, n: make(map[int64]int)}, nil
}

var errFlaky = errors.New("input/output error")

func (f *flakyFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n[off]++
	if f.fs.fail(f.Name(), off) && (f.fs.times < 0 || f.n[off] <= f.fs.times) {
		return 0, errFlaky
	}
	return f.OpenFile.ReadAt(p, off)
}

var _ io.ReaderAt = (*flakyFile)(nil)

// Traits implements sources.Format.
func (fakeFormat) Traits() sources.Traits { return sources.Traits{} }
