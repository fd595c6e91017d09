package sources_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/read/budget"
	"millrace/sources/read/feed"
	"millrace/sources/read/order"
)

// newVariedScene is a scene whose documents hardly pack, beside a plain shard.
func newVariedScene(t *testing.T) *scene {
	x := newScene(t, "jsonl")
	r := rand.New(rand.NewPCG(1, 1))
	x.whole = nil
	for i := range changedRecords {
		text := make([]byte, changedRecord)
		for at := range text {
			text[at] = byte('A'+r.IntN(26)) + byte(32*r.IntN(2))
		}
		x.whole = fmt.Appendf(x.whole, "{\"text\": \"%d %s\"}\n", i, text)
	}
	x.write(x.whole)
	put(t, x.spec.Base, "b.jsonl", []byte(`{"text": "a plain shard beside it"}`+"\n"))
	return x
}

// newPackedScene is the same scene with the documents in one gzip member.
func newPackedScene(t *testing.T) *scene {
	x := newVariedScene(t)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(x.whole); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(x.path); err != nil {
		t.Fatal(err)
	}
	x.whole, x.path, x.spec.Copies = b.Bytes(), x.path+".gz", true
	x.write(x.whole)
	return x
}

func (x *scene) copyPath() string {
	x.t.Helper()
	found, err := filepath.Glob(filepath.Join(x.spec.IndexDir, "copies", "*"))
	if err != nil || len(found) != 1 {
		x.t.Fatalf("the copies are %v, %v", found, err)
	}
	return found[0]
}

// tokens returns the documents of one pass by their ordinals.
func (x *scene) tokens(log *slog.Logger) (docs []string, m *millrace.Manifest) {
	x.t.Helper()
	s, err := sources.Open(x.t.Context(), x.spec, sources.OpenOptions{Logger: log})
	if err != nil {
		x.t.Fatal(err)
	}
	defer s.Close()
	ctx, stop := context.WithCancel(x.t.Context())
	f := feed.New(s, feed.Position{}, order.Stripe{}, feed.Config{Budget: budget.New(1 << 20), Parallel: 2})
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); <-ended }()
	f.Want(1 << 40)
	for {
		b, err := f.Next(ctx)
		if err != nil {
			x.t.Fatal(err)
		}
		for _, o := range b.Offers {
			req := []feed.Request{{Ordinal: o.Ordinal, Length: o.Lengths.Tokens}}
			err := f.Fetch(ctx, req, func(_ int, tokens []uint32, _ string) error {
				docs = append(docs, fmt.Sprint(tokens))
				return nil
			})
			if err != nil {
				x.t.Fatal(err)
			}
			f.Release(o.Ordinal + 1)
		}
		if b.End {
			return docs, s.Manifest()
		}
	}
}

// TestGlobalOrderOfPackedFiles: with copies, a file that only streams is read in global order, and gives the documents
// of the plain file in the order of the plain file.
func TestGlobalOrderOfPackedFiles(t *testing.T) {
	want, _ := newVariedScene(t).tokens(nil)
	x := newPackedScene(t)
	for _, run := range []string{"first", "second"} {
		got, m := x.tokens(nil)
		if m.Shuffle != millrace.Global || m.Why != "" || !m.Shards[0].Counted {
			t.Fatalf("%s run: shuffle %s because %q, counted %v", run, m.Shuffle, m.Why, m.Shards[0].Counted)
		}
		if len(got) != changedRecords+1 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s run: %d documents differ from those of the plain file", run, len(got))
		}
	}
	st, err := os.Stat(x.copyPath())
	if err != nil || st.Size() > 2*int64(len(x.whole)) {
		t.Errorf("the copy of %d bytes takes %d: %v", len(x.whole), st.Size(), err)
	}
	x.spec.Copies = false
	if s, err := x.open(); err != nil || s.Manifest().Shuffle != millrace.Blocks {
		t.Errorf("without copies the shuffle is %v: %v", s.Manifest().Shuffle, err)
	}
}

// TestLostCopies: a copy that was removed, cut, or damaged costs time and no document.
func TestLostCopies(t *testing.T) {
	x := newPackedScene(t)
	want, _ := x.tokens(nil)
	path := x.copyPath()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[100] ^= 8 // inside the first frame: it is found when the frame is read
	for name, bytes := range map[string][]byte{"removed": nil, "cut": whole[:len(whole)/2], "flipped": flipped} {
		var log bytesLog
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if bytes != nil {
			put(t, filepath.Dir(path), filepath.Base(path), bytes)
		}
		if got, _ := x.tokens(log.logger()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d documents of %d, or others", name, len(got), len(want))
		}
		if name != "removed" && !strings.Contains(log.String(), "a seekable copy cannot be read") {
			t.Errorf("%s: the log says %q", name, log.String())
		}
		x.tokens(nil) // which makes the copy again
		if is, err := os.ReadFile(x.copyPath()); err != nil || string(is) != string(whole) {
			t.Errorf("%s: the copy that was made again differs: %v", name, err)
		}
	}
}

type bytesLog struct{ strings.Builder }

func (b *bytesLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// TestCopiesFollowTheirFiles: a file that changed between runs is refused although its copy is whole. A touched file is
// read.
func TestCopiesFollowTheirFiles(t *testing.T) {
	x := newPackedScene(t)
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
	x.write(x.whole)
	if err := x.read(); err != nil {
		t.Errorf("a touched file: %v", err)
	}
	other := bytes.Clone(x.whole)
	other[len(other)/2] ^= 1
	x.write(other)
	if err := x.read(); !errors.Is(err, millrace.ErrMismatch) || len(other) <= 2<<20 {
		t.Errorf("a changed file of %d bytes: %v", len(other), err)
	}
}

// TestNoRoomForCopies: the error names the file, the directory and both cures. A damaged packed file is named as such.
func TestNoRoomForCopies(t *testing.T) {
	x := newPackedScene(t)
	put(t, x.spec.IndexDir, "copies", []byte("a file in the way"))
	_, err := x.open()
	for _, word := range []string{"a.jsonl.gz", x.spec.IndexDir, "index_dir", "seekable_copies: false"} {
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	if err := os.Remove(filepath.Join(x.spec.IndexDir, "copies")); err != nil {
		t.Fatal(err)
	}
	x.write(x.whole[:len(x.whole)-20])
	if _, err := x.open(); !errors.Is(err, millrace.ErrDamaged) || !strings.Contains(err.Error(), "a.jsonl.gz") {
		t.Errorf("a cut file: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(x.spec.IndexDir, "copies")); err != nil || len(left) > 0 {
		t.Errorf("a failed copy leaves %v: %v", left, err)
	}
}
