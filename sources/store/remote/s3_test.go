package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources"
	"millrace/sources/find"
	"millrace/sources/store/cache"
)

// faults stands before a server and breaks some of its answers.
type faults struct {
	inner    http.Handler
	latency  time.Duration
	requests atomic.Int64

	mu sync.Mutex
	do func(n int64, w http.ResponseWriter, r *http.Request) bool // answers instead of the server, if it returns true
}

func (f *faults) set(do func(n int64, w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.do = do
}

func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := f.requests.Add(1)
	time.Sleep(f.latency)
	f.mu.Lock()
	do := f.do
	f.mu.Unlock()
	if do != nil && do(n, w, r) {
		return
	}
	f.inner.ServeHTTP(w, r)
}

// server is an S3 service with one bucket.
type server struct {
	*faults
	url     string
	backend *s3mem.Backend
}

func newServer(t testing.TB) *server {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("data"); err != nil {
		t.Fatal(err)
	}
	f := &faults{inner: gofakes3.New(backend).Server()}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIASECRETKEYID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "verysecretkey")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return &server{f, s.URL, backend}
}

func (s *server) put(t testing.TB, key string, content []byte) {
	t.Helper()
	if _, err := s.backend.PutObject("data", key, nil, bytes.NewReader(content), int64(len(content)), nil); err != nil {
		t.Fatal(err)
	}
}

func (s *server) files(t *testing.T) (*Host, *Files) {
	t.Helper()
	h := NewHost(Options{})
	return h, h.Files("web", Storage{Endpoint: s.url, Region: "us-east-1"})
}

// figures returns the figures of the source of these tests.
func figures(h *Host) activity.Fetches { return h.counts["web"].fetches() }

func content(n int) []byte {
	out, rng := make([]byte, n), rand.New(rand.NewPCG(1, 2))
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

func open(t testing.TB, files *Files, url string) sources.OpenFile {
	t.Helper()
	f, err := files.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestReads: every range of an object has its bytes, read in order, backwards and at random by several readers.
func TestReads(t *testing.T) {
	s := newServer(t)
	want := content(5<<20 + 12345)
	s.put(t, "a/b.bin", want)
	_, files := s.files(t)
	f := open(t, files, "s3://data/a/b.bin")
	if f.Size() != int64(len(want)) {
		t.Fatalf("size %d, want %d", f.Size(), len(want))
	}
	got, err := io.ReadAll(sources.NewReader(f, 0, f.Size()))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("in order: %v, %d bytes", err, len(got))
	}
	var group sync.WaitGroup
	for seed := range uint64(4) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 3))
			for range 50 {
				off := rng.Int64N(f.Size())
				p := make([]byte, rng.IntN(300<<10))
				n, err := f.ReadAt(p, off)
				end := min(off+int64(len(p)), f.Size())
				if err != nil && !(errors.Is(err, io.EOF) && end == f.Size()) || !bytes.Equal(p[:n], want[off:end]) {
					t.Errorf("bytes %d to %d: %d read, %v", off, end, n, err)
				}
			}
		})
	}
	group.Wait()
	if n, err := f.ReadAt(make([]byte, 1), f.Size()); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, err)
	}
}

// TestFinds: patterns, directories and prefixes name the objects of a bucket as they name files of a directory.
func TestFinds(t *testing.T) {
	s := newServer(t)
	for _, key := range []string{"web/part-0.jsonl", "web/part-1.jsonl", "web/deep/x.jsonl", "web/.hidden.jsonl",
		"web/README.md", "books/corpus.bin", "books/corpus.idx", "other/a.jsonl"} {
		s.put(t, key, []byte("{}\n"))
	}
	_, files := s.files(t)
	for _, c := range []struct{ pattern, format, root, want string }{
		{"s3://data/web/*.jsonl", "jsonl", "", "part-0.jsonl part-1.jsonl"},
		{"s3://data/web/part-{0..1}.jsonl", "jsonl", "", "part-0.jsonl part-1.jsonl"},
		{"s3://data/{web,other}/*.jsonl", "jsonl", "", "other/a.jsonl web/part-0.jsonl web/part-1.jsonl"},
		{"s3://data/**/*.jsonl", "jsonl", "", "other/a.jsonl web/deep/x.jsonl web/part-0.jsonl web/part-1.jsonl"},
		{"s3://data/web", "jsonl", "", "deep/x.jsonl part-0.jsonl part-1.jsonl"},
		{"s3://data/web/", "jsonl", "", "deep/x.jsonl part-0.jsonl part-1.jsonl"},
		{"s3://data/web/part-1.jsonl", "jsonl", "", "part-1.jsonl"},
		{"s3://data/web/part-1.jsonl", "jsonl", "s3://data", "web/part-1.jsonl"},
		{"s3://data/books/corpus", "megatron", "", "corpus.bin"},
		{"s3://data/books", "megatron", "", "corpus.bin"},
		{"s3://data/web/none*.jsonl", "jsonl", "", "! no jsonl file is there: looked for s3://data/web/none*.jsonl"},
		{"s3://data/none.jsonl", "jsonl", "", "! no jsonl file is there"},
		{"s3://*/a.jsonl", "jsonl", "", "! its bucket is a pattern"},
		{"s3://nobucket/a*.jsonl", "jsonl", "", "! NoSuchBucket"},
		{"ftp://data/a.jsonl", "jsonl", "", "! files are read from s3://, gs://"},
	} {
		got, err := find.Resolve(files, find.Query{Base: "/nowhere", Patterns: []string{c.pattern}, Root: c.root,
			Format: c.format})
		text := ""
		for i, f := range got.Files {
			text += strings.Repeat(" ", min(i, 1)) + f.Name
		}
		if err != nil {
			text = "! " + err.Error()
		}
		if want, isError := strings.CutPrefix(c.want, "! "); text != c.want &&
			!(isError && strings.Contains(text, want)) {
			t.Errorf("%s: got %s, want %s", c.pattern, text, c.want)
		}
	}
}

// TestFaults: errors that pass change no byte.
func TestFaults(t *testing.T) {
	s := newServer(t)
	want := content(3 << 20)
	s.put(t, "a.bin", want)
	for name, do := range map[string]func(n int64, w http.ResponseWriter, r *http.Request) bool{
		"503 with Retry-After": func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n%4 != 0 {
				return false
			}
			w.Header().Set("Retry-After", "0")
			http.Error(w, "SlowDown", http.StatusServiceUnavailable)
			return true
		},
		"429": func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n%4 == 0 {
				http.Error(w, "", http.StatusTooManyRequests)
			}
			return n%4 == 0
		},
		"reset": func(n int64, w http.ResponseWriter, _ *http.Request) bool {
			if n%4 == 0 {
				panic(http.ErrAbortHandler)
			}
			return false
		},
		"half a body": func(n int64, w http.ResponseWriter, r *http.Request) bool {
			if n%3 != 0 || r.Method != http.MethodGet {
				return false
			}
			rec := httptest.NewRecorder()
			s.inner.ServeHTTP(rec, r)
			for k, v := range rec.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes()[:rec.Body.Len()/2])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var faults atomic.Int64
			s.set(func(n int64, w http.ResponseWriter, r *http.Request) (done bool) {
				defer func() {
					if e := recover(); e != nil {
						faults.Add(1)
						panic(e)
					}
				}()
				if done = do(n, w, r); done {
					faults.Add(1)
				}
				return done
			})
			defer s.set(nil)
			h, files := s.files(t)
			f := open(t, files, "s3://data/a.bin")
			p := make([]byte, 100<<10)
			for off := int64(0); off < f.Size(); off += 300 << 10 {
				if err := sources.ReadFull(f, p[:min(int64(len(p)), f.Size()-off)], off); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(p[:min(int64(len(p)), f.Size()-off)], want[off:min(off+int64(len(p)), f.Size())]) {
					t.Fatal("other bytes")
				}
			}
			if faults.Load() == 0 {
				t.Error("the fault did not happen")
			}
			// net/http itself repeats a request whose reused connection was reset before an answer.
			if figures(h).Retries == 0 && name != "reset" {
				t.Error("no request was tried again")
			}
		})
	}
}

// TestCached: a second process finds in the cache what the first one read, and asks the store for nothing.
func TestCached(t *testing.T) {
	s := newServer(t)
	want := content(3<<20 + 77)
	s.put(t, "a.bin", want)
	dir := t.TempDir()
	for run := range 2 {
		blocks, err := cache.OpenBlocks(cache.Config{Dir: dir, Limit: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		h := NewHost(Options{Cache: blocks})
		f := open(t, h.Files("web", Storage{Endpoint: s.url, Region: "us-east-1"}), "s3://data/a.bin")
		for _, off := range []int64{2_500_000, 100, 1 << 20, 3 << 20, 5} {
			p := make([]byte, min(400<<10, f.Size()-off))
			if err := sources.ReadFull(f, p, off); err != nil || !bytes.Equal(p, want[off:off+int64(len(p))]) {
				t.Fatalf("run %d, byte %d: %v, or other bytes", run, off, err)
			}
		}
		if n := figures(h).Requests; run == 0 && n == 0 || run == 1 && n > 0 {
			t.Errorf("run %d: %d requests", run, n)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.put(t, "a.bin", content(3<<20)) // another version has no blocks
	blocks, err := cache.OpenBlocks(cache.Config{Dir: dir, Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(Options{Cache: blocks})
	defer h.Close()
	f := open(t, h.Files("web", Storage{Endpoint: s.url, Region: "us-east-1"}), "s3://data/a.bin")
	if err := sources.ReadFull(f, make([]byte, 10), 100); err != nil || figures(h).Requests == 0 {
		t.Errorf("blocks of another version were used: %v", err)
	}
}

// TestReplaced: an object that is replaced while it is open is an error that names it.
func TestReplaced(t *testing.T) {
	s := newServer(t)
	s.put(t, "a.bin", content(1<<20))
	_, files := s.files(t)
	f := open(t, files, "s3://data/a.bin")
	if _, err := f.ReadAt(make([]byte, 10), 0); err != nil {
		t.Fatal(err)
	}
	s.put(t, "a.bin", append(content(1<<20-1), 1))
	_, err := f.ReadAt(make([]byte, 10), 500<<10)
	if !errors.Is(err, millrace.ErrMismatch) ||
		!strings.Contains(fmt.Sprint(err), "s3://data/a.bin: the object was replaced") {
		t.Errorf("got %v", err)
	}
}

// TestLastingErrors: errors that do not pass name the cause and the cure. None has a credential in it.
func TestLastingErrors(t *testing.T) {
	s := newServer(t)
	s.put(t, "a.bin", content(100))
	for _, c := range []struct {
		status int
		class  error
		says   string
	}{
		{403, fs.ErrPermission, "AWS_PROFILE"}, {404, fs.ErrNotExist, "check the bucket"},
		{400, fs.ErrInvalid, "endpoint and region"},
	} {
		s.set(func(_ int64, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(c.status)
			return true
		})
		_, files := s.files(t)
		_, err := files.Open("s3://data/a.bin")
		if !errors.Is(err, c.class) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%d: got %v, want %v with %q", c.status, err, c.class, c.says)
		}
		if strings.Contains(fmt.Sprintf("%+v", err), "SECRETKEYID") ||
			strings.Contains(fmt.Sprintf("%+v", err), "verysecret") {
			t.Errorf("%d: a credential is in %+v", c.status, err)
		}
	}
}

// TestOutage: a store that does not answer is unavailable, which a caller waits for.
func TestOutage(t *testing.T) {
	s := newServer(t)
	s.put(t, "a.bin", content(100))
	h, files := s.files(t)
	f := open(t, files, "s3://data/a.bin")
	s.set(func(int64, http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	_, err := f.ReadAt(make([]byte, 10), 0)
	if !errors.Is(err, sources.ErrUnavailable) || !sources.Passing(err) {
		t.Fatalf("got %v", err)
	}
	h.mu.Lock()
	for k, v := range h.seen { // as if long ago
		v.at = time.Time{}
		h.seen[k] = v
	}
	h.mu.Unlock()
	if id, err := files.Identity("s3://data/a.bin"); err != nil || id.Size != 100 {
		t.Errorf("the identity of before is lost: %v, %v", id, err)
	}
	s.set(nil)
	if _, err := f.ReadAt(make([]byte, 10), 0); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}
