package guard

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"millrace"
	"millrace/sources/facts/identity"
)

// world is the evidence of one file that a test changes.
type world struct {
	file    identity.File
	digest  byte
	content string // what Content compares
	kept    string // its kept digest; empty: none
	sample  uint64
	gone    bool
	fresh   bool   // each look finds another inode number
	looks   int    // at the ends
	entry   []byte // the file's remembered entry
}

func (w *world) Identity(string) (identity.File, error) {
	if w.gone {
		return identity.File{}, fs.ErrNotExist
	}
	if w.fresh {
		w.file.Inode++
	}
	return w.file, nil
}

func (w *world) Digest(string) (int64, millrace.Digest, error) {
	w.looks++
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
		"rewritten, no digest is kept":    {"", rewritten, "no digest of its content"},
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
		if err := g.Check(f, w.file); err != nil {
			t.Fatalf("%s: before the change: %v", name, err)
		}
		c.change(w)
		err = g.Check(f, w.file)
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
	if err := g.Check(f, now); err != nil {
		t.Fatal(err)
	}
	w.gone = true
	now.Changed++
	if err := g.Check(f, now); err != nil {
		t.Errorf("only its names changed: %v", err)
	}
	now.Modified++
	if err := g.Check(f, now); !errors.Is(err, millrace.ErrMismatch) {
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
	if err := g.Check(&Opened{}, identity.File{}); err != nil {
		t.Fatal(err)
	}
}

// TestInodeNumbersThatChange: a file system that gives a file another inode number at each look blocks neither a start
// nor a run, and its files' ends are compared once. Another file in the place of the shard is noticed all the same.
func TestInodeNumbersThatChange(t *testing.T) {
	for name, c := range map[string]struct {
		kept   string
		change func(*world)
		err    string // empty: it is still the shard
	}{
		"unchanged":                        {"", func(*world) {}, ""},
		"unchanged, with a digest":         {"abc", func(w *world) { w.content = "not read" }, ""},
		"written to":                       {"", func(w *world) { w.file.Modified++ }, "no digest of its content"},
		"written to, its old time kept":    {"", func(w *world) { w.file.Changed++; w.sample++ }, "since it was first"},
		"longer":                           {"abc", func(w *world) { w.file.Size++ }, "while it was"},
		"another file with the same times": {"", func(w *world) { w.sample++ }, "since it was first read"},
		"other ends with the same times":   {"", func(w *world) { w.digest++ }, "while it was read"},
	} {
		for _, isRunning := range []bool{false, true} {
			w := &world{file: identity.File{Inode: 1, Size: 10, Modified: 5, Changed: 5}, digest: 1, content: "abc",
				kept: c.kept, sample: 7, fresh: true}
			log := slog.New(slog.DiscardHandler)
			group := &Group{Source: "web", Cure: "restore the file", Evidence: w, Log: log,
				Seen: NewSeen(w, func(string) millrace.Digest { return millrace.Digest{} }, log)}
			shard := millrace.Shard{Path: "/data/a.jsonl", Size: 10, Digest: millrace.Digest{1}}
			watch := func() *Guard { return group.Watch(shard, []string{shard.Path}, []identity.File{w.file}) }
			g := watch()
			err := g.Admit(t.Context(), shard)
			if err == nil {
				err = g.Remember(identity.Facts{})
			}
			if err != nil {
				t.Fatalf("%s: at the first start: %v", name, err)
			}
			if isRunning {
				if c.change(w); c.err == "" {
					w.looks = 0
				}
				for range 5 {
					if err == nil {
						g.looked.Store(-int64(lookEvery)) // as if the next look were due
						err = g.Check(&Opened{}, w.file)
					}
				}
				if c.err == "" && w.looks != 1 {
					t.Errorf("%s: the ends were compared %d times", name, w.looks)
				}
			} else if c.change(w); w.digest == 1 { // other ends are another shard
				err = watch().Admit(t.Context(), shard)
			} else {
				continue
			}
			if (err == nil) != (c.err == "") && (isRunning || w.file.Size == 10) ||
				err != nil && !errors.Is(err, millrace.ErrMismatch) ||
				err != nil && isRunning && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s, during a run %v: %v, want %q", name, isRunning, err, c.err)
			}
		}
	}
}

// TestAFaultOfTheHostIsNoChange: if the files cannot be compared now, the check fails, and a later one succeeds.
func TestAFaultOfTheHostIsNoChange(t *testing.T) {
	w := &world{file: identity.File{Inode: 1, Size: 10, Modified: 5}, digest: 1, sample: 7}
	log := slog.New(slog.DiscardHandler)
	down := &sick{world: w}
	group := &Group{Source: "web", Evidence: down, Log: log,
		Seen: NewSeen(w, func(string) millrace.Digest { return millrace.Digest{} }, log)}
	g := group.Watch(millrace.Shard{Path: "a", Size: 10, Digest: millrace.Digest{1}}, []string{"a"},
		[]identity.File{w.file})
	w.file.Inode++ // mounted again
	down.err = unix.ENOTCONN
	if err := g.Check(&Opened{}, w.file); !errors.Is(err, unix.ENOTCONN) {
		t.Fatal(err)
	}
	down.err = nil
	if err := g.Check(&Opened{}, w.file); err != nil {
		t.Fatal(err)
	}
}

// sick is evidence that cannot be read.
type sick struct {
	*world
	err error
}

func (s *sick) Digest(path string) (int64, millrace.Digest, error) {
	if s.err != nil {
		return 0, millrace.Digest{}, s.err
	}
	return s.world.Digest(path)
}
