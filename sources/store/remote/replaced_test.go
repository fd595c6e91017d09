package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace"
	"millrace/sources"
)

// versioned serves one object under the routes of Azure, Google, the hub and a web server. A replaced object has other
// bytes, as many as before.
type versioned struct {
	version atomic.Int64
	size    int64
	noETag  bool // the web server tells the time of the last change alone
}

func (v *versioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := v.version.Load()
	etag := fmt.Sprintf(`"v%d"`, n)
	body := bytes.Repeat([]byte{byte(n)}, int(v.size))
	path := r.URL.Path
	switch {
	case strings.HasPrefix(path, "/api/") && strings.Contains(path, "/revision/"):
		fmt.Fprint(w, `{"sha": "c0ffee"}`)
	case strings.HasPrefix(path, "/api/"):
		_ = json.NewEncoder(w).Encode([]hubFile{{Type: "file", Path: "a.bin", OID: "1234", Size: v.size}})
	case strings.HasPrefix(path, "/datasets/"): // a commit never changes: only a broken copy has another size
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(append(body, make([]byte, n)...)))
	case strings.HasPrefix(path, "/storage/v1/"):
		generation := fmt.Sprint(n)
		if want := r.URL.Query().Get("ifGenerationMatch"); want != "" && want != generation {
			http.Error(w, "", http.StatusPreconditionFailed)
			return
		}
		if r.URL.Query().Get("alt") == "media" {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
			return
		}
		_ = json.NewEncoder(w).Encode(gcsObject{Name: "a.bin", Size: fmt.Sprint(v.size), Generation: generation})
	default: // Azure and web servers; ServeContent honours If-Match
		if !v.noETag {
			w.Header().Set("ETag", etag)
		}
		if span := r.Header.Get("x-ms-range"); span != "" {
			r.Header.Set("Range", span)
		}
		http.ServeContent(w, r, "", time.Unix(1000+n, 0), bytes.NewReader(body))
	}
}

// TestReplacedOfEachScheme: no byte of an object's next version is read, whatever its service; the error names the
// object. (TestReplaced has S3.)
func TestReplacedOfEachScheme(t *testing.T) {
	for _, c := range []struct {
		name, url string
		noETag    bool
	}{
		{"az", "az://data/a.bin", false},
		{"gs", "gs://data/a.bin", false},
		{"hf", "hf://datasets/org/name/a.bin", false},
		{"web", "WEB/a.bin", false},
		{"web without ETag", "WEB/a.bin", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &versioned{size: 1 << 20, noETag: c.noETag}
			s := httptest.NewServer(v)
			defer s.Close()
			url := strings.Replace(c.url, "WEB", s.URL, 1)
			h := NewHost(Options{})
			f := open(t, h.Files("web", Storage{Endpoint: s.URL, Anonymous: true}), url)
			if err := sources.ReadFull(f, make([]byte, 10), 0); err != nil {
				t.Fatal(err)
			}
			v.version.Add(1)
			p := make([]byte, 10)
			n, err := f.ReadAt(p, 500<<10)
			if n != 0 || !errors.Is(err, millrace.ErrMismatch) ||
				!strings.Contains(fmt.Sprint(err), url+": the object was replaced") {
				t.Errorf("got %d bytes, %v", n, err)
			}
			if bytes.Count(p, []byte{0}) != len(p) {
				t.Error("bytes of another version were read")
			}
		})
	}
}
