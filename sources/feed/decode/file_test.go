package decode

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"millrace/sources"
)

// TestTextsInAFile: texts of all sizes come back from the file as they were added, beside each other and after others
// were recycled. Recycled places are used again, and the directory is empty.
func TestTextsInAFile(t *testing.T) {
	dir := t.TempDir()
	store := Store{Slabs: make(Slabs, 4)}
	var err error
	if store.File, err = newFile(dir); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.File.Close(); err != nil {
			t.Error(err)
		}
	}()
	rnd := rand.New(rand.NewPCG(3, 4))
	type held struct {
		text *Text
		want [][]byte
	}
	add := func() (h held) {
		h.text = &Text{}
		for n := range 40 {
			doc := bytes.Repeat(fmt.Appendf(nil, "%d %d,", n, rnd.Int()), rnd.IntN(1<<rnd.IntN(15)))
			h.want = append(h.want, doc)
			h.text.add(&sources.Record{Number: uint64(n), Text: doc, Raw: int64(len(doc))}, store)
		}
		h.text.end(store)
		return h
	}
	var texts []held
	ends := make([]int64, 0, 200)
	var buf []byte
	for range 200 {
		texts = append(texts, add())
		at := rnd.IntN(len(texts))
		for n, want := range texts[at].want {
			r, err := texts[at].text.record(uint64(n), store, &buf, nil)
			if err != nil || !bytes.Equal(r.Text, want) {
				t.Fatalf("record %d of %d bytes is another: %v", n, len(want), err)
			}
		}
		if h := texts[at].text; h.Raw() > 4*heldText && h.Size() > SlabBytes+4096 {
			t.Fatalf("a text of %d bytes takes %d in memory", h.Raw(), h.Size())
		}
		if len(texts) == 5 {
			texts[at].text.Recycle(store)
			texts = append(texts[:at], texts[at+1:]...)
		}
		ends = append(ends, store.File.end)
	}
	if ends[199] == 0 || ends[199] > 2*ends[99] {
		t.Errorf("the file has %d bytes after 100 texts and %d after 200", ends[99], ends[199])
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the directory has %v, %v", names, err)
	}
}

// TestFullFile: texts for which a file has no room stay in memory, and so do those without a file.
func TestFullFile(t *testing.T) {
	file, err := newFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil { // writes fail from here on
		t.Fatal(err)
	}
	for name, store := range map[string]Store{"closed": {File: file}, "none": {}} {
		text := &Text{}
		for n := range 64 {
			text.add(&sources.Record{Number: uint64(n), Text: bytes.Repeat([]byte{byte(n)}, longRecord/2)}, store)
		}
		text.end(store)
		for n := range 64 {
			var buf []byte
			r, err := text.record(uint64(n), store, &buf, nil)
			if err != nil || !bytes.Equal(r.Text, bytes.Repeat([]byte{byte(n)}, longRecord/2)) {
				t.Fatalf("%s: record %d is another: %v", name, n, err)
			}
		}
		if store.Memory(1<<20) != 1<<20 || text.Size() < 64*longRecord/2 {
			t.Errorf("%s: a text takes %d bytes", name, text.Size())
		}
	}
}
