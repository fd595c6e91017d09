package cache_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/format/jsonl"
	"millrace/sources/read/feed"
	"millrace/sources/read/filter"
	"millrace/sources/read/order"
	"millrace/sources/store/cache"
)

// letters is a tokenizer that makes a token of every byte and counts its calls.
type letters struct{ calls *atomic.Int64 }

func (l letters) Append(dst []uint32, text []byte, _ func()) []uint32 {
	l.calls.Add(1)
	for _, b := range text {
		dst = append(dst, uint32(b)*uint32(b)*7)
	}
	return dst
}
func (letters) BOS() (uint32, bool)   { return 0, false }
func (letters) EOS() (uint32, bool)   { return 1, true }
func (letters) Fingerprint() [16]byte { return [16]byte{3} }

// corpus writes shards of JSON lines, some of them bad, and returns the settings of their source.
func corpus(t *testing.T, shards, records int) (sources.Spec, *atomic.Int64) {
	t.Helper()
	dir, calls := t.TempDir(), &atomic.Int64{}
	for i := range shards {
		var b strings.Builder
		for r := range records {
			if r%41 == 7 {
				b.WriteString("{not JSON\n")
				continue
			}
			fmt.Fprintf(&b, `{"text": "shard %d, document %d%s", "score": %d, "lang": "%s"}`+"\n", i, r,
				strings.Repeat(", and so on", r%17), r%10, []string{"de", "en"}[r%2])
		}
		put(t, filepath.Join(dir, fmt.Sprintf("part-%02d.jsonl", i)), b.String())
	}
	return sources.Spec{Name: "web", Format: jsonl.Format{}, Base: dir, Patterns: []string{"."},
		Field: sources.Field{Text: "text"}, Seed: 5, Epochs: 1,
		Tokenizer: letters{calls}, AddEOS: true, IndexDir: t.TempDir()}, calls
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, dir string, limit int64) *cache.Store {
	t.Helper()
	s, err := cache.Open(cache.Config{Dir: dir, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openSource(t *testing.T, spec sources.Spec, store *cache.Store) *sources.Source {
	t.Helper()
	opts := sources.OpenOptions{}
	if store != nil {
		opts.Cache = store
	}
	src, err := sources.Open(t.Context(), spec, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// stream returns a digest of every offer of a source and of the tokens of every document.
func stream(t *testing.T, src *sources.Source) uint64 {
	t.Helper()
	offers, tokens := fnv.New64a(), fnv.New64a() // the sizes of batches are not part of a stream
	for index := range uint32(2) {
		func() {
			ctx, stop := context.WithCancel(t.Context())
			f := feed.New(src, feed.Position{}, order.Stripe{Index: index, Of: 2}, feed.Config{})
			var run sync.WaitGroup
			run.Go(func() { _ = f.Run(ctx) })
			defer run.Wait()
			defer stop()
			for below := millrace.Ordinal(0); ; {
				f.Want(below + 512)
				b, err := f.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				var reqs []feed.Request
				for _, o := range b.Offers {
					fmt.Fprintln(offers, o.SampleMeta)
					if o.Quarantine != nil {
						fmt.Fprintln(offers, *o.Quarantine)
					} else if o.Refused == 0 {
						reqs = append(reqs, feed.Request{Ordinal: o.Ordinal, Length: o.Lengths.Tokens})
					}
					below = o.Ordinal + 1
				}
				documents := make([]string, len(reqs))
				if err := f.Fetch(ctx, reqs, func(i int, document []uint32, _ string) error {
					documents[i] = fmt.Sprint(document)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				for _, d := range documents {
					fmt.Fprintln(tokens, d)
				}
				f.Release(below)
				if b.End {
					return
				}
			}
		}()
	}
	return offers.Sum64() ^ tokens.Sum64()
}

func fillAll(t *testing.T, store *cache.Store, src *sources.Source) (out []cache.Filled) {
	t.Helper()
	for i := range src.Manifest().Shards {
		got, err := store.Fill(t.Context(), src, uint32(i), func() {})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, got)
	}
	return out
}

// TestStreamIsTheSame: offers, rejects, refusals and tokens do not depend on the cache, in any order and with filters.
// A complete cache tokenises nothing.
func TestStreamIsTheSame(t *testing.T) {
	for _, shuffle := range []millrace.Shuffle{millrace.Global, millrace.Blocks, millrace.InFileOrder} {
		for _, text := range []string{"", `score > 3 && lang == "en" && bytes > 30`} {
			for _, kept := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s filter %v kept %v", shuffle, text != "", kept), func(t *testing.T) {
					testStream(t, shuffle, text, kept)
				})
			}
		}
	}
}

func testStream(t *testing.T, shuffle millrace.Shuffle, text string, kept bool) {
	spec, calls := corpus(t, 4, 700)
	spec.Shuffle = shuffle
	if text != "" {
		own, err := filter.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if spec.Filters, err = filter.NewSet(own); err != nil {
			t.Fatal(err)
		}
	}
	if !kept {
		spec.IndexDir = ""
	}
	want := stream(t, openSource(t, spec, nil))
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	src := openSource(t, spec, store)
	if got := stream(t, src); got != want {
		t.Error("an empty cache changes the stream")
	}
	if got := fillAll(t, store, src); slices.Contains(got, cache.Left) {
		t.Fatalf("fill: got %v", got)
	}
	calls.Store(0)
	if got := stream(t, openSource(t, spec, openStore(t, dir, 1<<30))); got != want {
		t.Error("a complete cache changes the stream")
	}
	if n := calls.Load(); n > 0 {
		t.Errorf("a complete cache: %d texts were tokenised", n)
	}
	for i, path := range entries(t, dir) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[(i+1)*len(b)/5] ^= 4
		put(t, path, string(b))
	}
	if got := stream(t, openSource(t, spec, openStore(t, dir, 1<<30))); got != want {
		t.Error("a damaged cache changes the stream")
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.tokens"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// TestFillerFillsWhatIsRead: after one pass with a filler, the next pass tokenises nothing.
func TestFillerFillsWhatIsRead(t *testing.T) {
	spec, calls := corpus(t, 3, 500)
	want := stream(t, openSource(t, spec, nil))
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	filler := store.Filler()
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = filler.Run(ctx, func() bool { return true }) })
	src := openSource(t, spec, store)
	if got := stream(t, src); got != want {
		t.Error("filling changes the stream")
	}
	for end := time.Now().Add(20 * time.Second); len(entries(t, dir)) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the filler has written %d entries of 3", len(entries(t, dir)))
		}
	}
	stop()
	run.Wait()
	calls.Store(0)
	if got := stream(t, openSource(t, spec, openStore(t, dir, 1<<30))); got != want || calls.Load() > 0 {
		t.Errorf("the second pass: %d texts were tokenised; same stream: %v", calls.Load(), got == want)
	}
}

// TestLimitHolds: entries never exceed the limit together. Those of earlier runs go, least recently used first; those
// that this run uses or has open stay.
func TestLimitHolds(t *testing.T) {
	spec, _ := corpus(t, 6, 2000)
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	fillAll(t, store, openSource(t, spec, store))
	paths := entries(t, dir)
	size := dirSize(t, dir) / 6
	for i, path := range paths {
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	// Entry 0 is the oldest, but a process has it open.
	inUse, err := cache.OSFS().Open(paths[0])
	if err != nil || !inUse.Lock(false) {
		t.Fatal(err)
	}
	defer inUse.Close()
	limit := 7 * size
	other, _ := corpus(t, 4, 2000)
	store = openStore(t, dir, limit)
	src := openSource(t, other, store)
	if got := fillAll(t, store, src); slices.Contains(got, cache.Left) {
		t.Fatalf("fill: got %v", got)
	}
	if got := dirSize(t, dir); got > limit {
		t.Errorf("the cache has %d bytes, its limit is %d", got, limit)
	}
	left := entries(t, dir)
	if !slices.Contains(left, paths[0]) || slices.Contains(left, paths[1]) || !slices.Contains(left, paths[5]) {
		t.Errorf("of the entries %v, %v are left", paths, left)
	}
	small := openStore(t, t.TempDir(), size*2)
	got := fillAll(t, small, openSource(t, spec, small))
	if got[0] != cache.Wrote || got[5] != cache.Left {
		t.Errorf("a cache for two entries: got %v", got)
	}
}

func dirSize(t *testing.T, dir string) (sum int64) {
	t.Helper()
	names, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if st, err := n.Info(); err == nil && n.Name() != ".used" {
			sum += st.Size()
		}
	}
	return sum
}

// TestEditedShardIsTokenisedAgain: a file that was edited between its first and last MiB has the same digest, and
// another entry.
func TestEditedShardIsTokenisedAgain(t *testing.T) {
	spec, calls := corpus(t, 1, 1)
	path := filepath.Join(spec.Base, "part-00.jsonl")
	line := `{"text": "` + strings.Repeat("as it is ", 100) + `"}` + "\n"
	text := strings.Repeat(line, (5<<20)/len(line))
	put(t, path, text)
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	src := openSource(t, spec, store)
	fillAll(t, store, src)
	before := stream(t, src)
	time.Sleep(15 * time.Millisecond) // a tick of the file system's clock
	put(t, path, text[:len(text)/2]+strings.ReplaceAll(text[len(text)/2:len(text)/2+4000], "is", "IS")+
		text[len(text)/2+4000:])
	spec.IndexDir = t.TempDir() // the user accepts the file as it is
	calls.Store(0)
	if stream(t, openSource(t, spec, openStore(t, dir, 1<<30))) == before || calls.Load() == 0 {
		t.Error("an edited shard was served from the entry of the old one")
	}
}

// freshFS gives a file another inode number at each look, and has no times of change.
type freshFS struct {
	sources.FS
	looks *atomic.Uint64
}

type freshFile struct {
	sources.OpenFile
	fs freshFS
}

func (f freshFS) renumber(id identity.File, err error) (identity.File, error) {
	id.Inode += f.looks.Add(1)
	id.Changed = id.Modified
	return id, err
}

func (f freshFS) Identity(path string) (identity.File, error) { return f.renumber(f.FS.Identity(path)) }

func (f freshFS) Open(path string) (sources.OpenFile, error) {
	o, err := f.FS.Open(path)
	return freshFile{o, f}, err
}

func (f freshFile) Identity() (identity.File, error) { return f.fs.renumber(f.OpenFile.Identity()) }

// TestInodeNumbersThatChange: on a file system that gives a file another inode number at each look, a later run has the
// entries of an earlier one. A file of equal size, times and ends has another entry if its middle differs.
func TestInodeNumbersThatChange(t *testing.T) {
	spec, calls := corpus(t, 3, 300)
	line := func(word string) string { return `{"text": "` + strings.Repeat(word, 100) + `"}` + "\n" }
	ends := strings.Repeat(line("as it is "), (2<<20)/len(line("as it is ")))
	write := func(word string) {
		path, at := filepath.Join(spec.Base, "long.jsonl"), time.Now().Add(-time.Hour).Truncate(time.Hour)
		put(t, path, ends+strings.Repeat(line(word), (1<<20)/len(line(word)))+ends)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	open := func(dir string) (*cache.Store, *sources.Source) {
		store := openStore(t, dir, 1<<30)
		src, err := sources.Open(t.Context(), spec, sources.OpenOptions{Cache: store,
			FS: freshFS{sources.OSFS(), &atomic.Uint64{}}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close() })
		return store, src
	}
	for _, index := range []string{t.TempDir(), ""} { // kept between runs, or found by each
		spec.IndexDir = index
		write("middle it ")
		dir := t.TempDir()
		store, src := open(dir)
		fillAll(t, store, src)
		before := stream(t, src)
		calls.Store(0)
		if _, src := open(dir); stream(t, src) != before || calls.Load() > 0 {
			t.Errorf("index_dir %q: %d texts were tokenised again", index, calls.Load())
		}
	}
	dir := t.TempDir()
	store, src := open(dir)
	fillAll(t, store, src)
	write("center it ")
	want := stream(t, openSource(t, spec, nil))
	if _, src := open(dir); stream(t, src) != want {
		t.Error("a file with another middle was served from the entry of the old one")
	}
}

// TestProcessesShareACache: two processes fill and read one cache at the same time. Both get the stream of the source
// without a cache, and each shard has one entry.
func TestProcessesShareACache(t *testing.T) {
	if dir := os.Getenv("CACHE_TEST_DIR"); dir != "" {
		spec, _ := corpus(t, 1, 1)
		spec.Base, spec.IndexDir = os.Getenv("CACHE_TEST_BASE"), ""
		store := openStore(t, dir, 1<<30)
		src := openSource(t, spec, store)
		fillAll(t, store, src)
		fmt.Printf("stream %x\n", stream(t, src))
		return
	}
	spec, _ := corpus(t, 5, 1500)
	spec.IndexDir = ""
	want := fmt.Sprintf("stream %x\n", stream(t, openSource(t, spec, nil)))
	dir := t.TempDir()
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestProcessesShareACache$")
			c.Env = append(os.Environ(), "CACHE_TEST_DIR="+dir, "CACHE_TEST_BASE="+spec.Base)
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("got %v, %s, want %s", err, out, want)
			}
		})
	}
	wait.Wait()
	if n := len(entries(t, dir)); n != 5 {
		t.Errorf("the cache has %d entries, want 5", n)
	}
}

// TestCrashes: a writer that dies after any of its changes leaves no entry or a complete one, and the next writer
// starts anew.
func TestCrashes(t *testing.T) {
	spec, _ := corpus(t, 1, 3000)
	want := stream(t, openSource(t, spec, nil))
	for after := 0; ; after++ {
		dir := t.TempDir()
		disk := &dyingFS{FS: cache.OSFS(), left: after}
		store, err := cache.Open(cache.Config{Dir: dir, Limit: 1 << 30, FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Fill(t.Context(), openSource(t, spec, store), 0, func() {})
		disk.end()
		survivor := openStore(t, dir, 1<<30)
		src := openSource(t, spec, survivor)
		if got := stream(t, src); got != want {
			t.Fatalf("dead after %d changes: the stream differs", after)
		}
		if got := fillAll(t, survivor, src); got[0] == cache.Left {
			t.Fatalf("dead after %d changes: the entry cannot be written", after)
		}
		if got := stream(t, openSource(t, spec, survivor)); got != want {
			t.Fatalf("dead after %d changes: the entry written later changes the stream", after)
		}
		if err == nil {
			if after < 5 {
				t.Fatalf("a writer makes %d changes, and more are tested", after)
			}
			return
		}
	}
}

// dyingFS fails every change after the first left ones, as if its process had died: nothing is undone. A write that is
// cut short leaves half of its bytes.
type dyingFS struct {
	cache.FS
	left  int
	files []cache.File
}

type dyingFile struct {
	cache.File
	fs *dyingFS
}

var errDead = fmt.Errorf("the process is dead")

func (f *dyingFS) use() error {
	if f.left--; f.left < 0 {
		return errDead
	}
	return nil
}

func (f *dyingFS) end() {
	for _, file := range f.files {
		file.Close()
	}
}

func (f *dyingFS) Create(path string) (cache.File, error) {
	file, err := f.FS.Create(path)
	if err == nil {
		f.files = append(f.files, file)
	}
	return dyingFile{file, f}, err
}

func (f *dyingFS) Rename(from, to string) error {
	if err := f.use(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *dyingFS) Remove(path string) error {
	if err := f.use(); err != nil {
		return err
	}
	return f.FS.Remove(path)
}

func (f dyingFile) Close() error { return nil } // the kernel closes it

func (f dyingFile) Reserve(size int64) error {
	if err := f.fs.use(); err != nil {
		return err
	}
	return f.File.Reserve(size)
}

func (f dyingFile) Truncate(size int64) error {
	if err := f.fs.use(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f dyingFile) Sync() error {
	if err := f.fs.use(); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f dyingFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.use(); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}
