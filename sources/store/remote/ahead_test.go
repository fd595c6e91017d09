package remote

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/sources"
)

// zeros serves a file of zeros. before is called for each range with its first byte.
func zeros(t *testing.T, size int, before func(off int64, w http.ResponseWriter) (done bool)) string {
	t.Helper()
	content := make([]byte, size)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if off, ok := parseSpan(r.Header.Get("Range")); ok && before(off, w) {
			return
		}
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(content))
	}))
	t.Cleanup(web.Close)
	return web.URL + "/zeros.bin"
}

// parseSpan reads the first byte of a Range header.
func parseSpan(text string) (off int64, ok bool) {
	span, ok := strings.CutPrefix(text, "bytes=")
	first, _, _ := strings.Cut(span, "-")
	off, err := strconv.ParseInt(first, 10, 64)
	return off, ok && err == nil
}

// TestLatePage: while one page is late, the pages behind it are read, further than those that were in flight with it.
func TestLatePage(t *testing.T) {
	const late, beyond = 20, mostFlying + 8
	var mu sync.Mutex
	asked, many := map[int64]bool{}, make(chan struct{})
	url := zeros(t, 56<<20, func(off int64, _ http.ResponseWriter) bool {
		page := off / pageBytes
		mu.Lock()
		if page > late && !asked[page] {
			asked[page] = true
			if len(asked) == beyond {
				close(many)
			}
		}
		mu.Unlock()
		if page == late {
			select {
			case <-many:
			case <-time.After(time.Minute):
				t.Errorf("the pages behind a late one are not read")
			}
		}
		return false
	})
	f := open(t, NewHost(Options{}).Files("web", Storage{}), url)
	n, err := io.CopyBuffer(io.Discard, sources.NewReader(f, 0, f.Size()), make([]byte, 256<<10))
	if err != nil || n != f.Size() {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestStoreThatIsAway: many readers of a store that does not answer do not wait for each other's retries. Each learns
// that the store is away, and asks it less often than it may.
func TestStoreThatIsAway(t *testing.T) {
	const readers = 32
	isAway := atomic.Bool{}
	url := zeros(t, 4<<20, func(_ int64, w http.ResponseWriter) bool {
		if isAway.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return isAway.Load()
	})
	h := NewHost(Options{})
	f := open(t, h.Files("web", Storage{}), url)
	isAway.Store(true)
	var group sync.WaitGroup
	for n := range int64(readers) {
		group.Go(func() {
			if _, err := f.ReadAt(make([]byte, 10), n*100<<10); !errors.Is(err, sources.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	if x := figures(h); x.Requests >= readers*readTries {
		t.Errorf("%+v: every reader tried %d times", x, readTries)
	}
}

// TestLoad: with 5 % of errors, a store gets at most a tenth more requests.
func TestLoad(t *testing.T) {
	var mu sync.Mutex
	n := 0
	url := zeros(t, 48<<20, func(_ int64, w http.ResponseWriter) bool {
		mu.Lock()
		defer mu.Unlock()
		n++
		if n%20 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n%20 == 0
	})
	h := NewHost(Options{})
	f := open(t, h.Files("web", Storage{}), url)
	p := make([]byte, 64<<10)
	for off := int64(0); off < f.Size(); off += 3 * int64(len(p)) { // too far apart for read-ahead
		if err := sources.ReadFull(f, p, off); err != nil {
			t.Fatal(err)
		}
	}
	x := figures(h)
	if good := x.Requests - x.Retries - x.Hedges; x.Retries < 10 || x.Requests*10 > good*11 {
		t.Errorf("%+v: %d requests for %d ranges", x, x.Requests, good)
	}
}
