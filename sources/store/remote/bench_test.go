package remote

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/sources"
	"millrace/sources/store/cache"
)

// BenchmarkInOrder reads 24 MiB in order from a store with 50 ms latency: ranges of 1 MiB one after the other, then
// with read-ahead, with 5 % of errors, from a filled cache, and from a local file.
func BenchmarkInOrder(b *testing.B) {
	const size, step = 24 << 20, 1 << 20
	s := newServer(b)
	want := content(size)
	s.put(b, "a.bin", want)
	s.latency = 50 * time.Millisecond
	local := filepath.Join(b.TempDir(), "a.bin")
	if err := os.WriteFile(local, want, 0o600); err != nil {
		b.Fatal(err)
	}
	blocks, err := cache.OpenBlocks(cache.Config{Dir: b.TempDir(), Limit: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer blocks.Close()
	fail := func(n int64, w http.ResponseWriter, _ *http.Request) bool {
		if n%20 == 0 {
			http.Error(w, "SlowDown", http.StatusServiceUnavailable)
		}
		return n%20 == 0
	}
	inOrder := func(f sources.File) error {
		_, err := io.CopyBuffer(io.Discard, sources.NewReader(f, 0, size), make([]byte, 256<<10))
		return err
	}
	oneByOne := func(f sources.File) error {
		for off := int64(size - step); off >= 0; off -= step { // backwards, so nothing is read ahead
			if err := sources.ReadFull(f, make([]byte, step), off); err != nil {
				return err
			}
		}
		return nil
	}
	for _, c := range []struct {
		name  string
		path  string
		cache *cache.Blocks
		fault func(int64, http.ResponseWriter, *http.Request) bool
		read  func(sources.File) error
	}{
		{"one by one", "s3://data/a.bin", nil, nil, oneByOne},
		{"read-ahead", "s3://data/a.bin", nil, nil, inOrder},
		{"read-ahead, 5 % errors", "s3://data/a.bin", nil, fail, inOrder},
		{"filling the cache", "s3://data/a.bin", blocks, nil, inOrder},
		{"warm cache", "s3://data/a.bin", blocks, nil, inOrder},
		{"local file", local, nil, nil, inOrder},
	} {
		b.Run(c.name, func(b *testing.B) {
			s.set(c.fault)
			defer s.set(nil)
			b.SetBytes(size)
			h := NewHost(Options{Cache: c.cache})
			for b.Loop() {
				f := open(b, h.Files("web", Storage{Endpoint: s.url, Region: "us-east-1"}), c.path)
				if err := c.read(f); err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
			x := figures(h)
			b.ReportMetric(float64(x.Requests)/float64(max(x.Requests-x.Retries-x.Hedges, 1)), "load")
		})
	}
}
