package sources_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/index"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/megatron"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// words is a tokenizer that makes a token of every eight bytes.
type words struct{}

func (words) Append(dst []uint32, text []byte, _ func()) []uint32 {
	for ; len(text) >= 8; text = text[8:] {
		dst = append(dst, binary.LittleEndian.Uint32(text)^binary.LittleEndian.Uint32(text[4:]))
	}
	return dst
}
func (words) BOS() (uint32, bool)   { return 0, false }
func (words) EOS() (uint32, bool)   { return 1, true }
func (words) Fingerprint() [16]byte { return [16]byte{7} }

const (
	changedRecords = 4000
	changedRecord  = 1024 // bytes; a whole file is larger than the part under its digest
)

// scene is a directory with one shard, and an index directory.
type scene struct {
	t          *testing.T
	path       string
	spec       sources.Spec
	whole      []byte
	companions []string
}

func newScene(t *testing.T, format string) *scene {
	x := &scene{
		t: t,
		spec: sources.Spec{
			Name:     "web",
			Base:     t.TempDir(),
			Patterns: []string{"."},
			Seed:     3,
			Epochs:   1,
			IndexDir: t.TempDir(),
		},
	}
	switch format {
	case "jsonl":
		x.spec.Format, x.spec.Tokenizer, x.spec.Field = jsonl.Format{}, words{}, sources.Field{Text: "text"}
		for i := range changedRecords {
			text := fmt.Sprintf("Document %d ", i) + strings.Repeat("says so ", changedRecord/8)
			x.whole = fmt.Appendf(x.whole, "{\"text\": \"%s\"}\n", text[:changedRecord-13])
		}
		x.path = filepath.Join(x.spec.Base, "a.jsonl")
	case "megatron":
		x.spec.Format = megatron.New(sources.OSFS())
		le := binary.LittleEndian
		idx := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 8) // uint16
		idx = le.AppendUint64(le.AppendUint64(idx, changedRecords), changedRecords+1)
		for range changedRecords {
			idx = le.AppendUint32(idx, changedRecord/2)
		}
		for i := range changedRecords {
			idx = le.AppendUint64(idx, uint64(i*changedRecord))
		}
		for i := range changedRecords + 1 {
			idx = le.AppendUint64(idx, uint64(i))
		}
		x.whole = bytes.Repeat([]byte{1, 0}, changedRecords*changedRecord/2)
		x.path = filepath.Join(x.spec.Base, "a.bin")
		put(t, x.spec.Base, "a.idx", idx)
		x.companions = []string{"a.idx"}
	}
	x.write(x.whole)
	return x
}

func (x *scene) write(b []byte) {
	x.t.Helper()
	tick()
	if err := os.WriteFile(x.path, b, 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// tick waits for the next tick of the file system's clock.
func tick() { <-time.After(15 * time.Millisecond) }

// edited returns the shard with some bytes of the middle changed.
func (x *scene) edited() []byte {
	b := bytes.Clone(x.whole)
	copy(b[len(b)/2:], bytes.ReplaceAll(b[len(b)/2:len(b)/2+2*changedRecord], []byte("so"), []byte("no")))
	if bytes.Equal(b, x.whole) {
		b[len(b)/2] ^= 2
	}
	return b
}

func (x *scene) open() (*sources.Source, error) {
	s, err := sources.Open(x.t.Context(), x.spec, sources.OpenOptions{})
	if err == nil {
		x.t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// read opens the source and reads one pass of it.
func (x *scene) read() error {
	s, err := x.open()
	if err != nil {
		return err
	}
	defer s.Close()
	return readPass(x.t, s, func() {})
}

// readPass reads one pass of a source, a few documents a fetch; between is called after the first fetch.
func readPass(t *testing.T, s *sources.Source, between func()) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(256 << 10), Parallel: 2})
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); <-ended }()
	f.Want(1 << 20)
	for n := 0; ; {
		b, err := f.Next(ctx)
		if err != nil {
			return err
		}
		for _, o := range b.Offers {
			req := []feed.Request{{Ordinal: o.Ordinal, Length: o.Lengths.Tokens}}
			if err := f.Fetch(ctx, req, func(int, []uint32, string) error { return nil }); err != nil {
				return err
			}
			f.Release(o.Ordinal + 1)
			if n++; n == 50 {
				between()
			}
		}
		if b.End {
			return nil
		}
	}
}

// TestFileChangedBetweenRuns: a file with edits outside of its digest is refused by name, however it was written. A
// touched or copied file is read.
func TestFileChangedBetweenRuns(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	acts := map[string]func(x *scene, b []byte){
		"in place": func(x *scene, b []byte) { x.write(b) },
		"in place with its old time": func(x *scene, b []byte) {
			st, err := os.Stat(x.path)
			must(err)
			x.write(b)
			must(os.Chtimes(x.path, time.Time{}, st.ModTime()))
		},
		"another file in its place": func(x *scene, b []byte) {
			put(t, x.spec.Base, "new", b)
			must(os.Rename(filepath.Join(x.spec.Base, "new"), x.path))
		},
		"in another directory": func(x *scene, b []byte) {
			x.spec.Base = t.TempDir()
			put(t, x.spec.Base, filepath.Base(x.path), b)
			for _, c := range x.companions {
				companion, err := os.ReadFile(filepath.Join(filepath.Dir(x.path), c))
				must(err)
				put(t, x.spec.Base, c, companion)
			}
			x.path = filepath.Join(x.spec.Base, filepath.Base(x.path))
		},
	}
	for name, act := range acts {
		x := newScene(t, "jsonl")
		must(x.read())
		act(x, x.whole)
		if err := x.read(); err != nil {
			t.Errorf("jsonl, the same bytes %s: %v", name, err)
		}
		act(x, x.edited())
		err := x.read()
		if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), "source web") ||
			!strings.Contains(err.Error(), x.path) ||
			!strings.Contains(err.Error(), "changed since it was indexed") {
			t.Errorf("jsonl, edited %s: %v", name, err)
		}
		act(x, x.whole)
		if err := x.read(); err != nil {
			t.Errorf("jsonl, restored %s: %v", name, err)
		}
	}
}

// TestLongerFileIsAnotherShard: no index was kept for a file with other ends, so a new run reads it.
func TestLongerFileIsAnotherShard(t *testing.T) {
	x := newScene(t, "jsonl")
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
	x.write(append(bytes.Clone(x.whole), "{\"text\": \"one more\"}\n"...))
	if err := x.read(); err != nil {
		t.Error(err)
	}
}

// TestTokenFileChangedBetweenRuns: a token file has no digest of all bytes unless check --deep kept one. Without it a
// modified file is refused, and a copy with the same time is compared by samples.
func TestTokenFileChangedBetweenRuns(t *testing.T) {
	x := newScene(t, "megatron")
	if err := errors.Join(x.read(), x.read()); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(x.path)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(b []byte) {
		t.Helper()
		tick()
		put(t, t.TempDir(), "new", nil)
		next := filepath.Join(x.spec.Base, "a.new")
		err := errors.Join(os.WriteFile(next, b, 0o600), os.Chtimes(next, time.Time{}, st.ModTime()),
			os.Rename(next, x.path))
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(x.whole)
	if err := x.read(); err != nil {
		t.Errorf("copied with its time: %v", err)
	}
	half := bytes.Clone(x.whole)
	for i := len(half) / 2; i < len(half)-1<<20; i++ {
		half[i] = 3
	}
	replace(half)
	refused := func(what string) {
		t.Helper()
		if err := x.read(); !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), x.path) ||
			!strings.Contains(err.Error(), "source web") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("half of it overwritten, with its old time")
	x.write(half)
	refused("half of it overwritten")
	x.write(x.whole)
	refused("touched")
	if err := os.RemoveAll(x.spec.IndexDir); err != nil {
		t.Fatal(err)
	}
	s, err := sources.Open(t.Context(), x.spec, sources.OpenOptions{Deep: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	x.write(x.whole)
	if err := x.read(); err != nil {
		t.Errorf("touched after all of it was digested: %v", err)
	}
	x.write(x.edited())
	refused("edited after all of it was digested")
	x.spec.Verify = sources.VerifyOff
	if err := x.read(); err != nil {
		t.Errorf("edited, not verified: %v", err)
	}
}

// TestFileChangedUnderARun: bytes that are read after a change are not served; the error names the file.
func TestFileChangedUnderARun(t *testing.T) {
	for _, c := range []struct {
		format, name string
		act          func(x *scene)
		refused      bool
	}{
		{"jsonl", "edited", func(x *scene) { x.write(x.edited()) }, true},
		{"jsonl", "touched", func(x *scene) {
			if err := os.Chtimes(x.path, time.Time{}, time.Unix(1e9, 0)); err != nil {
				x.t.Fatal(err)
			}
		}, false},
		{"jsonl", "cut", func(x *scene) { x.write(x.whole[:len(x.whole)/2]) }, true},
		{"jsonl", "moved away", func(x *scene) {
			if err := os.Rename(x.path, x.path+".away"); err != nil {
				x.t.Fatal(err)
			}
		}, false},
		{"megatron", "half overwritten", func(x *scene) {
			f, err := os.OpenFile(x.path, os.O_WRONLY, 0)
			if err != nil {
				x.t.Fatal(err)
			}
			_, err = f.WriteAt(bytes.Repeat([]byte{9, 0}, len(x.whole)/4), int64(len(x.whole)/4))
			if err = errors.Join(err, f.Close()); err != nil {
				x.t.Fatal(err)
			}
		}, true},
		{"megatron", "its mode changed", func(x *scene) {
			if err := os.Chmod(x.path, 0o400); err != nil {
				x.t.Fatal(err)
			}
		}, false},
	} {
		x := newScene(t, c.format)
		s, err := x.open()
		if err != nil {
			t.Fatal(err)
		}
		tick()
		err = readPass(t, s, func() { c.act(x) })
		if !c.refused && err != nil {
			t.Errorf("%s %s: %v", c.format, c.name, err)
		}
		if c.refused && (!errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), x.path) ||
			!strings.Contains(err.Error(), "source web") || !strings.Contains(err.Error(), "changed")) {
			t.Errorf("%s %s: %v", c.format, c.name, err)
		}
	}
}

// TestFileReplacedUnderARun: another file at the path of an open shard is noticed in a few seconds.
func TestFileReplacedUnderARun(t *testing.T) {
	x := newScene(t, "jsonl")
	s, err := x.open()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	o, err := s.Acquire(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release(o)
	put(t, x.spec.Base, "new", x.edited())
	if err := os.Rename(filepath.Join(x.spec.Base, "new"), x.path); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for err == nil && time.Since(begun) < 20*time.Second {
		err = o.Read(ctx, []uint64{5}, func(r sources.Record) error { return nil })
		tick()
	}
	if !errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), x.path) {
		t.Fatal(err)
	}
}

// TestIndexOfEarlierRelease: an index without a digest of its file's content is made again, unless the kept identities
// prove that it is of this file.
func TestIndexOfEarlierRelease(t *testing.T) {
	x := newScene(t, "jsonl")
	s, err := x.open()
	if err != nil {
		t.Fatal(err)
	}
	digest := s.Manifest().Shards[0].Digest
	blob := func(change func([]byte) []byte) []byte {
		t.Helper()
		store, err := index.Open(x.spec.IndexDir, index.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		b, ok := store.Load(digest, "jsonl-index")
		if !ok {
			t.Fatal("no index is kept")
		}
		b = bytes.Clone(b)
		if change != nil {
			if err := store.Save(digest, "jsonl-index", change(b)); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	const tail = 24 // the digest and its mark
	whole := blob(func(b []byte) []byte { return b[:len(b)-tail] })
	for round := range 2 {
		if round == 1 { // no kept identity proves that the index is of this file
			b := blob(nil)
			if err := os.RemoveAll(x.spec.IndexDir); err != nil {
				t.Fatal(err)
			}
			store, err := index.Open(x.spec.IndexDir, index.Options{})
			if err == nil {
				err = errors.Join(store.Save(digest, "jsonl-index", b), store.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := x.read(); err != nil {
			t.Fatal(err)
		}
		want := whole
		if round == 0 {
			want = whole[:len(whole)-tail] // the identities of its file are kept
		}
		if b := blob(nil); !bytes.Equal(b, want) {
			t.Errorf("round %d: the index has %d bytes, want %d", round, len(b), len(want))
		}
	}
}
