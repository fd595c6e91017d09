package decode

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/sources"
)

// fileOf returns a file of at most so many bytes, and its log.
func fileOf(t *testing.T, most int64, hasSpace bool) (*File, *strings.Builder) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "texts"))
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	out := NewFile(f, most, func() bool { return hasSpace }, slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	return out, &said
}

// heldText is a text with the documents that it was made of.
type heldText struct {
	*Text
	want [][]byte
}

// textOf makes a text of documents of random sizes, some of them of several slabs.
func textOf(rnd *rand.Rand, documents int, store Store) (h heldText) {
	h.Text = &Text{wanted: everything()}
	for n := range documents {
		doc := bytes.Repeat(fmt.Appendf(nil, "%d %d,", n, rnd.Int()), rnd.IntN(1<<rnd.IntN(15)))
		h.want = append(h.want, doc)
		h.add(&sources.Record{Number: uint64(n), Text: doc, Raw: int64(len(doc))}, store)
	}
	h.finish(store)
	return h
}

// check compares every document.
func (h heldText) check(t *testing.T, store Store) {
	t.Helper()
	var buf []byte
	for n, want := range h.want {
		r, err := h.record(uint32(n), store, &buf, nil)
		if err != nil || !bytes.Equal(r.Text, want) {
			t.Fatalf("document %d of %d bytes is another: %v", n, len(want), err)
		}
	}
}

// TestTextsInAFile: texts of all sizes come back from the file as they were added, beside each other and after others
// were recycled. They take little memory, and the file has the most places that were used at the same time.
func TestTextsInAFile(t *testing.T) {
	store := Store{Slabs: make(Slabs, 4)}
	store.File, _ = fileOf(t, 1<<30, true)
	rnd := rand.New(rand.NewPCG(3, 4))
	var texts []heldText
	used, most := 0, 0
	for range 200 {
		h := textOf(rnd, 40, store)
		if h.Raw() > heldSlabs*SlabBytes && (!h.IsInFile() || h.Size() > 4096) ||
			h.Size() > heldSlabs*SlabBytes+4096 {
			t.Fatalf("a text of %d bytes takes %d in memory", h.Raw(), h.Size())
		}
		used += len(h.places)
		most = max(most, used)
		texts = append(texts, h)
		at := rnd.IntN(len(texts))
		texts[at].check(t, store)
		if len(texts) == 5 {
			used -= len(texts[at].places)
			texts[at].Recycle(store)
			texts = append(texts[:at], texts[at+1:]...)
		}
	}
	if most == 0 || store.File.end != int64(most)*SlabBytes {
		t.Errorf("the file has %d bytes for at most %d slabs", store.File.end, most)
	}
}

// TestFullFile: texts for which a file has no room stay in memory, whole or from some slab on. They are charged.
func TestFullFile(t *testing.T) {
	small, _ := fileOf(t, 5*SlabBytes, true)
	full, _ := fileOf(t, 1<<30, false)
	for name, c := range map[string]struct {
		file   *File
		places int
	}{"none": {nil, 0}, "small": {small, 5}, "full": {full, 0}} {
		store := Store{Slabs: make(Slabs, 4), File: c.file}
		for range 2 { // the second one uses places again
			h := textOf(rand.New(rand.NewPCG(1, 2)), 100, store)
			if len(h.places) != c.places || h.Size() < int64(h.Raw())-int64(c.places)*SlabBytes {
				t.Errorf("%s: a text of %d bytes takes %d places and %d bytes", name, h.Raw(), len(h.places), h.Size())
			}
			if charge := store.Memory(int64(h.Raw())); charge != int64(h.Raw()) {
				t.Errorf("%s: the next text of %d bytes is charged with %d", name, h.Raw(), charge)
			}
			h.check(t, store)
			h.Recycle(store)
		}
		if charge := store.Memory(5 * SlabBytes); (charge == heldSlabs*SlabBytes) != (c.places == 5) {
			t.Errorf("%s: a text of five slabs is charged with %d", name, charge)
		}
	}
}

// TestFailedWrite: after a write that failed, the texts in the file are read further, and the others stay in memory.
func TestFailedWrite(t *testing.T) {
	store := Store{}
	file, said := fileOf(t, 1<<30, true)
	store.File = file
	rnd := rand.New(rand.NewPCG(5, 6))
	before := textOf(rnd, 100, store)
	half := textOf(rnd, 100, store)
	writable := file.file
	var err error
	if file.file, err = os.Open(writable.Name()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := writable.Close(); err != nil {
			t.Error(err)
		}
	}()
	doc := bytes.Repeat([]byte("y"), 3*SlabBytes)
	half.wanted = everything()
	half.add(&sources.Record{Number: 100, Text: doc}, store)
	half.want = append(half.want, doc)
	after := textOf(rnd, 100, store)
	for _, h := range []heldText{before, half, after} {
		h.check(t, store)
	}
	if !before.IsInFile() || half.Size() < 3*SlabBytes || after.IsInFile() || store.Memory(1<<20) != 1<<20 {
		t.Errorf("texts before, at and after the failure take %d, %d and %d bytes",
			before.Size(), half.Size(), after.Size())
	}
	if n := strings.Count(said.String(), "stay in memory"); n != 1 {
		t.Errorf("%d warnings: %s", n, said)
	}
}

// TestFailedRead: a text that cannot be read back is an error.
func TestFailedRead(t *testing.T) {
	store := Store{}
	store.File, _ = fileOf(t, 1<<30, true)
	h := textOf(rand.New(rand.NewPCG(5, 6)), 100, store)
	if err := store.File.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	var buf []byte
	for n, want := range h.want {
		r, err := h.record(uint32(n), store, &buf, nil)
		if len(want) > 0 && (err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error())) {
			t.Fatalf("a document of %d bytes came back with %d: %v", len(want), len(r.Text), err)
		}
	}
}
