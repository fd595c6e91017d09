package sourcetest

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"millrace/sources"
	"millrace/sources/store/cache"
)

// counting is a tokenizer that makes a token of every two bytes, wide ones among them, and counts its calls.
type counting struct{ calls *atomic.Int64 }

func (c counting) Append(dst []uint32, text []byte, _ func()) []uint32 {
	c.calls.Add(1)
	for ; len(text) > 1; text = text[2:] {
		dst = append(dst, uint32(binary.LittleEndian.Uint16(text))<<(text[0]&1))
	}
	return dst
}
func (counting) BOS() (uint32, bool)   { return 0, false }
func (counting) EOS() (uint32, bool)   { return 2, true }
func (counting) Fingerprint() [16]byte { return [16]byte{9} }

// document is everything that a source makes of one record.
type document struct {
	Number      uint64
	Offset, Raw int64
	Bytes       int64
	Others      []any
	Why         string
	Tokens      []uint32
}

func (d document) equal(o document) bool {
	return d.Number == o.Number && d.Offset == o.Offset && d.Raw == o.Raw && d.Bytes == o.Bytes && d.Why == o.Why &&
		slices.Equal(d.Tokens, o.Tokens) && reflect.DeepEqual(d.Others, o.Others)
}

// cachedFixture is a fixture on disk, with the documents of its shard.
type cachedFixture struct {
	Fixture
	spec  sources.Spec
	dir   string // of the cache
	calls atomic.Int64
	want  []document
}

// cached tests that a token cache changes no document, in all its states: empty, complete, damaged at every part,
// removed, and on a full disk.
func (f Fixture) cached(t *testing.T, mk New) {
	for _, w := range f.Want {
		if w.Tokens != nil {
			return // formats of tokens are not cached
		}
	}
	dir := t.TempDir()
	for path, b := range f.Files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x := &cachedFixture{Fixture: f, dir: filepath.Join(t.TempDir(), "cache")}
	x.spec = sources.Spec{Name: "web", Format: mk(sources.OSFS()), Base: dir,
		Patterns: []string{filepath.Base(f.path())}, Field: f.Field, Limits: f.Limits, Epochs: 1, Shuffle: "none",
		Tokenizer: counting{&x.calls}, AddEOS: true}
	x.with(t, nil, func(src *sources.Source) { x.want = x.documents(t, src, nil) })
	if len(x.want) == 0 {
		return
	}
	store := x.store(t, nil)
	x.with(t, store, func(src *sources.Source) {
		x.compare(t, src, "empty cache")
		x.fill(t, store, src, cache.Wrote)
		x.compare(t, src, "entry written while the shard is open")
		x.fill(t, store, src, cache.Present)
	})
	x.with(t, store, func(src *sources.Source) {
		x.calls.Store(0)
		x.compare(t, src, "complete cache")
		if n := x.calls.Load(); n > 0 {
			t.Errorf("complete cache: %d texts were tokenised", n)
		}
	})
	x.damages(t, store)
	x.full(t)
}

func (x *cachedFixture) store(t *testing.T, fs cache.FS) *cache.Store {
	t.Helper()
	store, err := cache.Open(cache.Config{Dir: x.dir, Limit: 1 << 30, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// with opens the source with a cache, or without one.
func (x *cachedFixture) with(t *testing.T, store *cache.Store, act func(*sources.Source)) {
	t.Helper()
	opts := sources.OpenOptions{}
	if store != nil {
		opts.Cache = store
	}
	src, err := sources.Open(t.Context(), x.spec, opts)
	if len(x.Want) == 0 && err != nil {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	act(src)
}

func (x *cachedFixture) fill(t *testing.T, store *cache.Store, src *sources.Source, want cache.Filled) {
	t.Helper()
	if got, err := store.Fill(t.Context(), src, 0, func() {}); err != nil || got != want {
		t.Fatalf("fill: got %v, %v, want %v", got, err, want)
	}
}

// documents reads records with their documents; nil numbers: all, in order.
func (x *cachedFixture) documents(t *testing.T, src *sources.Source, numbers []uint64) (out []document) {
	t.Helper()
	o, err := src.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Release(o)
	take := func(r sources.Record) error {
		d := document{Number: r.Number, Offset: r.Offset, Raw: r.Raw, Others: slices.Clone(r.Others)}
		if r.Err != nil {
			d.Why = r.Err.Error()
		} else if d.Tokens, err = src.Document(nil, &r, nil); err != nil {
			return err
		}
		d.Bytes = r.MadeOf
		out = append(out, d)
		return nil
	}
	if numbers == nil {
		err = o.Scan(t.Context(), 0, take)
	} else {
		err = o.Read(t.Context(), numbers, take)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// compare reads the shard in order, and at random where it can be.
func (x *cachedFixture) compare(t *testing.T, src *sources.Source, what string) {
	t.Helper()
	equal := func(got, want []document) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: got %d documents, want %d", what, len(got), len(want))
		}
		for i := range got {
			if !got[i].equal(want[i]) {
				t.Fatalf("%s: got record %d %q with %d tokens, want record %d %q with %d", what, got[i].Number,
					got[i].Why, len(got[i].Tokens), want[i].Number, want[i].Why, len(want[i].Tokens))
			}
		}
	}
	equal(x.documents(t, src, nil), x.want)
	o, err := src.Acquire(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, counted := o.Count()
	seekable := counted && o.Seekable()
	src.Release(o)
	if !seekable {
		return
	}
	for _, step := range []int{1, 2, 7, 300} {
		var numbers []uint64
		var want []document
		for i := 0; i < len(x.want); i += 1 + i%step {
			numbers, want = append(numbers, uint64(i)), append(want, x.want[i])
		}
		equal(x.documents(t, src, numbers), want)
	}
}

// damages flips, cuts and removes the entry. Reading then goes back to the shard, and the entry can be written again.
func (x *cachedFixture) damages(t *testing.T, store *cache.Store) {
	paths, err := filepath.Glob(filepath.Join(x.dir, "*.tokens"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("the cache has entries %v, %v, want one", paths, err)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(paths[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	between := max(4, min(24, (256<<10)/len(whole)))
	for _, at := range sample(len(whole), between) {
		flipped := slices.Clone(whole)
		flipped[at] ^= 0x10
		put(flipped)
		x.with(t, store, func(src *sources.Source) {
			x.compare(t, src, fmt.Sprintf("byte %d of %d flipped", at, len(whole)))
			if now, err := os.ReadFile(paths[0]); err == nil && slices.Equal(now, flipped) {
				t.Errorf("byte %d of %d flipped: the entry is still there", at, len(whole))
			}
		})
		put(whole[:at])
		x.with(t, store, func(src *sources.Source) {
			x.compare(t, src, fmt.Sprintf("cut to %d of %d bytes", at, len(whole)))
			x.fill(t, store, src, cache.Wrote)
		})
		if now, err := os.ReadFile(paths[0]); err != nil || !slices.Equal(now, whole) {
			t.Fatalf("an entry written again differs: %v", err)
		}
	}
	x.with(t, store, func(src *sources.Source) {
		x.compare(t, src, "before the entry is removed")
		if err := os.Remove(paths[0]); err != nil {
			t.Fatal(err)
		}
		x.compare(t, src, "after the entry was removed")
	})
	x.with(t, store, func(src *sources.Source) { x.compare(t, src, "without its entry") })
}

// full fills the cache on a disk that gets full at each of the first changes.
func (x *cachedFixture) full(t *testing.T) {
	for after := range 8 {
		disk := &fullFS{FS: cache.OSFS()}
		disk.left.Store(int64(after))
		store := x.store(t, disk)
		x.with(t, store, func(src *sources.Source) {
			got, err := store.Fill(t.Context(), src, 0, func() {})
			if err != nil || got != cache.Left && disk.left.Load() < 0 {
				t.Fatalf("full disk after %d changes: got %v, %v", after, got, err)
			}
			x.compare(t, src, fmt.Sprintf("full disk after %d changes", after))
		})
		left, err := os.ReadDir(x.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range left {
			if e.Name() != ".used" && filepath.Ext(e.Name()) != ".tokens" {
				t.Errorf("full disk after %d changes: %s is left", after, e.Name())
			}
			if filepath.Ext(e.Name()) == ".tokens" {
				os.Remove(filepath.Join(x.dir, e.Name()))
			}
		}
	}
}

// fullFS has no room after the first left changes of files.
type fullFS struct {
	cache.FS
	left atomic.Int64
}

type fullFile struct {
	cache.File
	fs *fullFS
}

func (f *fullFS) Create(path string) (cache.File, error) {
	file, err := f.FS.Create(path)
	if err != nil {
		return nil, err
	}
	return fullFile{file, f}, nil
}

func (f *fullFS) use() error {
	if f.left.Add(-1) < 0 {
		return syscall.ENOSPC
	}
	return nil
}

func (f fullFile) Reserve(size int64) error {
	if err := f.fs.use(); err != nil {
		return err
	}
	return f.File.Reserve(size)
}

func (f fullFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.use(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f fullFile) Sync() error {
	if err := f.fs.use(); err != nil {
		return err
	}
	return f.File.Sync()
}
