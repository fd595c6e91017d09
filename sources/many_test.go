package sources_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/sources"
	"millrace/sources/format/jsonl"
	"millrace/sources/format/megatron"
	"millrace/sources/store/openfiles"
)

// limitDescriptors sets the limit of this process for the time of a test.
func limitDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = n
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// TestManyTokenShardsAtOnce: 10,000 Megatron shards are open and read at once by a process with 256 descriptors.
func TestManyTokenShardsAtOnce(t *testing.T) {
	const shards, documents, length = 10_000, 10, 6
	dir := t.TempDir()
	le := binary.LittleEndian
	idx := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 8) // uint16
	idx = le.AppendUint64(le.AppendUint64(idx, documents), documents+1)
	for range documents {
		idx = le.AppendUint32(idx, length)
	}
	for i := range documents {
		idx = le.AppendUint64(idx, uint64(2*length*i))
	}
	for i := range documents + 1 {
		idx = le.AppendUint64(idx, uint64(i))
	}
	put(t, dir, "a.idx", idx)
	put(t, dir, "a.bin", make([]byte, 2*length*documents))
	for i := 1; i < shards; i++ {
		for _, ext := range []string{".bin", ".idx"} {
			name := filepath.Join(dir, fmt.Sprintf("b%05d%s", i, ext))
			if err := os.Link(filepath.Join(dir, "a"+ext), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	limitDescriptors(t, 256)
	before := descriptors(t)
	spec := sources.Spec{Name: "web", Base: dir, Patterns: []string{"."}, Epochs: 1, IndexDir: t.TempDir(),
		Format: megatron.New(sources.OSFS())}
	s, err := sources.Open(t.Context(), spec, sources.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var open []*sources.OpenShard
	for i := range shards {
		o, err := s.Acquire(t.Context(), uint32(i))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, o)
	}
	for _, o := range open {
		read := 0
		err := o.Read(t.Context(), []uint64{1, 7}, func(r sources.Record) error {
			read += len(r.Tokens)
			return r.Err
		})
		if err != nil || read != 2*length {
			t.Fatalf("read %d tokens: %v", read, err)
		}
	}
	if n := descriptors(t) - before; n > 140 {
		t.Errorf("%d more descriptors are open, for %d shards", n, shards)
	}
	for _, o := range open {
		s.Release(o)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := descriptors(t) - before; n > 0 {
		t.Errorf("%d descriptors are left open", n)
	}
}

// TestWithoutDescriptors: if other parts of the process took all descriptors, reading ends with an error that names the
// cure. It is not tried again, also not by a patient source.
func TestWithoutDescriptors(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "a.jsonl", []byte("{\"text\": \"one\"}\n"))
	spec := sources.Spec{Name: "web", Base: dir, Patterns: []string{"."}, Epochs: 1, Format: jsonl.Format{},
		Field: sources.Field{Text: "text"}, Limits: sources.Limits{SampleBytes: 1 << 20}, IndexDir: t.TempDir()}
	s, err := sources.Open(t.Context(), spec, sources.OpenOptions{Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	limitDescriptors(t, uint64(descriptors(t)+3))
	for {
		f, err := os.Open(dir)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = s.Acquire(ctx, 0)
	var exhausted *openfiles.Exhausted
	if !errors.As(err, &exhausted) || !strings.Contains(err.Error(), "a.jsonl") || sources.Passing(err) ||
		!strings.Contains(err.Error(), "ulimit -n") {
		t.Fatal(err)
	}
}

// TestRestartReadsNothing: a source whose files are as they were is opened without reading one of them.
func TestRestartReadsNothing(t *testing.T) {
	for _, format := range []string{"jsonl", "megatron"} {
		x := newScene(t, format)
		<-time.After(200 * time.Millisecond) // a file that was just changed is read again
		var want *sources.Source
		for round := range 3 {
			fs := &countingFS{FS: sources.OSFS()}
			s, err := sources.Open(t.Context(), x.spec, sources.OpenOptions{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			switch {
			case round == 0:
				want = s
				if fs.opened == 0 {
					t.Fatal("the test does not see the files that are opened")
				}
			case fs.opened > 0:
				t.Errorf("%s: %d files were opened", format, fs.opened)
			case s.Manifest().Fingerprint != want.Manifest().Fingerprint ||
				s.Manifest().Shards[0] != want.Manifest().Shards[0]:
				t.Errorf("%s: got %+v, want %+v", format, s.Manifest(), want.Manifest())
			}
		}
		tick()
		if err := os.Chtimes(x.path, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		fs := &countingFS{FS: sources.OSFS()}
		s, err := sources.Open(t.Context(), x.spec, sources.OpenOptions{FS: fs})
		if err == nil {
			s.Close()
		}
		if fs.opened == 0 {
			t.Errorf("%s: a file with another time was not opened", format)
		}
	}
}

// countingFS counts the files that are opened.
type countingFS struct {
	sources.FS
	opened int
}

func (c *countingFS) Open(path string) (sources.OpenFile, error) {
	c.opened++
	return c.FS.Open(path)
}

// TestIndexLostBehindTheSurvey: a shard whose index is damaged after the source was opened is indexed again when it is
// read.
func TestIndexLostBehindTheSurvey(t *testing.T) {
	x := newScene(t, "jsonl")
	<-time.After(200 * time.Millisecond)
	for range 2 { // the second time the file is not read
		s, err := x.open()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(x.spec.IndexDir, "shards.pack")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), "MRjl") // the payload of the index
	if at < 0 {
		t.Fatal("no index is kept")
	}
	b[at+100] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := x.read(); err != nil {
		t.Fatal(err)
	}
}
