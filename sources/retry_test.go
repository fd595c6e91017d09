package sources

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources/store/openfiles"
)

// hiccup fails its first reads.
type hiccup struct {
	OpenFile
	left int
}

func (h *hiccup) Name() string { return "a.jsonl" }
func (h *hiccup) Close() error { return nil }

// fixed returns a file that is the same whenever it is opened.
func fixed(file OpenFile) *openfiles.File {
	return openfiles.New(1).File(func() (io.Closer, error) { return file, nil })
}

func (h *hiccup) ReadAt(p []byte, _ int64) (int, error) {
	if h.left--; h.left >= 0 {
		return 0, errors.New("host is down")
	}
	return len(p), nil
}

func patient(long bool, tell func(string)) *patience {
	return &patience{wait: 1, long: long, tried: func() {}, trouble: &trouble{tell: tell}}
}

// TestTroubleIsToldAndItsEnd: trouble is reported once, if reads fail for long. With long patience, its end is reported
// too.
func TestTroubleIsToldAndItsEnd(t *testing.T) {
	for fails, want := range map[int]int{0: 0, tellTry - 1: 0, tellTry: 2, readTries: 2, 3 * readTries: 2} {
		for _, long := range []bool{false, true} {
			var told []string
			f := &retryFile{
				held: fixed(&hiccup{left: fails}), name: "a.jsonl",
				patience: patient(long, func(text string) { told = append(told, text) }),
			}
			_, err := f.ReadAt(make([]byte, 1), 0)
			if (err != nil) != (fails >= readTries && !long) || len(told) != want ||
				(err != nil) != (f.failure() != nil) {
				t.Errorf("%d reads fail: %v, told %q", fails, err, told)
			}
			if want > 0 &&
				(!strings.Contains(told[0], "a.jsonl") || !strings.Contains(told[0], "host is down") ||
					!slices.Equal(told[1:], []string{""})) {
				t.Errorf("%d reads fail: told %q", fails, told)
			}
		}
	}
}

// TestAWaitForStorageIsNamed: a read that fails and is tried again is a wait for storage of its shard, from the first
// failure on.
func TestAWaitForStorageIsNamed(t *testing.T) {
	now := time.Unix(1, 0)
	meter := activity.New(func() time.Time { now = now.Add(time.Second); return now })
	var seen []activity.Kind
	p := patient(true, func(string) {})
	p.tried = func() { seen = append(seen, meter.Current("web").Kind) }
	f := &retryFile{held: fixed(&hiccup{left: 3}), name: "a.jsonl", shard: "a.jsonl", patience: p,
		activity: meter.Source("web")}
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 4 || seen[3] != activity.Storage {
		t.Errorf("the activities are %v", seen)
	}
	cause := activity.Cause{Kind: activity.Storage, Source: "web", Shard: "a.jsonl", Role: "loader-0"}
	if got := cause.Describe(); got != "loader-0 waits for the storage of a.jsonl of source web" {
		t.Error(got)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	spent := meter.Source("web").Figures().Times
	if spent[activity.Storage] == 0 || spent[activity.Read] == 0 {
		t.Errorf("the times are %v", spent)
	}
}

// TestPatienceEnds: the waits end with the source. Errors that do not pass are returned at once.
func TestPatienceEnds(t *testing.T) {
	done := make(chan struct{})
	close(done)
	for name, c := range map[string]struct {
		err   error
		tries int
	}{
		"the source is closed": {errors.New("host is down"), 1},
		"forbidden":            {fs.ErrPermission, 1},
		"the file's end":       {io.EOF, 1},
	} {
		tries := 0
		p := patient(true, func(string) {})
		p.done, p.wait = done, time.Hour
		f := &retryFile{held: fixed(&failing{err: c.err, tries: &tries}), patience: p}
		if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, c.err) || tries != c.tries {
			t.Errorf("%s: %v after %d tries", name, err, tries)
		}
	}
}

type failing struct {
	OpenFile
	err   error
	tries *int
}

func (*failing) Name() string { return "a.jsonl" }
func (*failing) Close() error { return nil }

func (f *failing) ReadAt([]byte, int64) (int, error) {
	*f.tries++
	return 0, f.err
}

// twoRecords is a format of shards that are opened only.
type twoRecords struct{ Shard }

func (twoRecords) Name() string   { return "jsonl" }
func (twoRecords) Traits() Traits { return Traits{} }

func (twoRecords) Open(context.Context, File, Field, Limits, []byte) (Shard, error) {
	return twoRecords{}, nil
}

func (twoRecords) Count() (uint64, bool) { return 2, true }
func (twoRecords) Seekable() bool        { return true }
func (twoRecords) Abilities() Abilities  { return Abilities{} }
func (twoRecords) Close() error          { return nil }

// TestAwayAndBack: an opening waits for a file that is away. If another file comes back, it fails.
func TestAwayAndBack(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, away := filepath.Join(dir, "a.jsonl"), filepath.Join(t.TempDir(), "away")
	for _, change := range []string{"", "three\n"} {
		s, err := Open(t.Context(),
			Spec{Name: "web", Format: twoRecords{}, Base: dir, Patterns: []string{"."}, Epochs: 1}, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.patience.wait = 1
		s.shards.closeIdle() // as if others had needed its descriptor
		told := make(chan string, 2)
		s.patience.long, s.patience.trouble.tell = true, func(text string) { told <- text }
		if err := os.Rename(path, away); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() { _, err := s.shards.acquire(t.Context(), 0); failed <- err }()
		if text := <-told; !strings.Contains(text, path) {
			t.Errorf("told %q", text)
		}
		data, err := os.ReadFile(away)
		if err == nil {
			err = os.WriteFile(away, append(data, change...), 0o600)
		}
		if err == nil {
			err = os.Rename(away, path) // at once: a half-written file is another file
		}
		if err != nil {
			t.Fatal(err)
		}
		if err, text := <-failed, <-told; text != "" || errors.Is(err, millrace.ErrMismatch) != (change != "") {
			t.Errorf("it is back with %q: %v, told %q", change, err, text)
		}
	}
}
