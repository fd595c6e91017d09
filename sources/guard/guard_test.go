package guard

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/identity"
)

// world is the evidence of one file that a test changes.
type world struct {
	file    identity.File
	digest  byte
	content string // what Content compares
	kept    string // its kept digest; empty: none
	sample  uint64
	gone    bool
	entry   []byte // the file's remembered entry
}

func (w *world) Identity(string) (identity.File, error) {
	if w.gone {
		return identity.File{}, fs.ErrNotExist
	}
	return w.file, nil
}

func (w *world) Digest(string) (int64, millrace.Digest, error) {
	return w.file.Size, millrace.Digest{w.digest}, nil
}

func (w *world) CoversAll([]identity.File) bool              { return false }
func (w *world) Sample([]string) (uint64, error)             { return w.sample, nil }
func (w *world) HasIndex(millrace.Shard) bool                { return false }
func (w *world) Load(millrace.Digest, string) ([]byte, bool) { return w.entry, w.entry != nil }

func (w *world) Save(_ millrace.Digest, _ string, blob []byte) error {
	w.entry = blob
	return nil
}

func (w *world) Content(millrace.Shard) func(context.Context) (string, error) {
	if w.kept == "" {
		return nil
	}
	return func(context.Context) (string, error) {
		if w.content != w.kept {
			return "since it was indexed", nil
		}
		return "", nil
	}
}

// open is an open file that has the identity of the world's file, or its own.
type open struct {
	*world
	own *identity.File
}

func (o open) Identity() (identity.File, error) {
	if o.own != nil {
		return *o.own, nil
	}
	return o.file, nil
}

// TestCheck: a shard that is read is served as long as its file, or the content of the file, is the same.
func TestCheck(t *testing.T) {
	touched := func(w *world) { w.file.Inode++ }
	rewritten := func(w *world) { touched(w); w.file.Modified++ }
	for name, c := range map[string]struct {
		kept   string
		change func(*world)
		err    string // empty: it is still the shard
	}{
		"unchanged":                       {"", func(*world) {}, ""},
		"copied, with the same times":     {"", touched, ""},
		"copied, with another middle":     {"", func(w *world) { touched(w); w.sample++ }, "since it was first read"},
		"rewritten, no digest is kept":    {"", rewritten, "no digest of its content is kept"},
		"rewritten with the same content": {"abc", rewritten, ""},
		"rewritten with other content": {
			"abc", func(w *world) { rewritten(w); w.content = "abd" }, "since it was indexed",
		},
		"other ends": {"abc", func(w *world) { touched(w); w.digest++ }, "while it was read"},
	} {
		w := &world{
			file:    identity.File{Inode: 1, Size: 10, Modified: 5},
			digest:  1,
			content: "abc",
			kept:    c.kept,
			sample:  7,
		}
		log := slog.New(slog.DiscardHandler)
		group := &Group{Source: "web", Cure: "restore the file", Evidence: w, Log: log,
			Seen: NewSeen(w, func(string) millrace.Digest { return millrace.Digest{} }, log)}
		shard := millrace.Shard{Path: "/data/a.jsonl", Size: 10, Digest: millrace.Digest{1}}
		g := group.Watch(shard, []string{shard.Path}, []identity.File{w.file})
		err := g.Admit(t.Context(), shard)
		if err == nil {
			err = g.Remember(identity.Facts{})
		}
		if err != nil {
			t.Fatal(err)
		}
		f := &Opened{}
		if err := g.Check(f, open{world: w}); err != nil {
			t.Fatalf("%s: before the change: %v", name, err)
		}
		c.change(w)
		err = g.Check(f, open{world: w})
		if (err == nil) != (c.err == "") ||
			err != nil && (!errors.Is(err, millrace.ErrMismatch) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
}

// TestCheckWithoutPath: an open file is served although no file is at its path, unless it changed.
func TestCheckWithoutPath(t *testing.T) {
	w := &world{file: identity.File{Inode: 1, Size: 10, Modified: 5}, digest: 1, sample: 7}
	log := slog.New(slog.DiscardHandler)
	group := &Group{
		Source:   "web",
		Evidence: w,
		Log:      log,
		Seen:     NewSeen(w, func(string) millrace.Digest { return millrace.Digest{} }, log),
	}
	g := group.Watch(millrace.Shard{Path: "a"}, []string{"a"}, []identity.File{w.file})
	f, now := &Opened{}, w.file
	if err := g.Check(f, open{w, &now}); err != nil {
		t.Fatal(err)
	}
	w.gone = true
	now.Changed++
	if err := g.Check(f, open{w, &now}); err != nil {
		t.Errorf("only its names changed: %v", err)
	}
	now.Modified++
	if err := g.Check(f, open{w, &now}); !errors.Is(err, millrace.ErrMismatch) {
		t.Errorf("it was written to: %v", err)
	}
}

// TestNoGroup: without a group there is no guard, and nothing is noticed.
func TestNoGroup(t *testing.T) {
	var none *Group
	g := none.Watch(millrace.Shard{}, nil, []identity.File{{Inode: 1}})
	if g != nil || g.Doubts() || g.Remember(identity.Facts{}) != nil ||
		g.Admit(t.Context(), millrace.Shard{}) != nil {
		t.Fatal("a source that is not verified has a guard")
	}
	if err := g.Check(&Opened{}, open{world: &world{}}); err != nil {
		t.Fatal(err)
	}
}
