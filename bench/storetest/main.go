// Command storetest serves the files of a directory as the objects of bucket `data` over S3, with faults: latency,
// errors, and outages. It prints its URL. /_faults?latency=50ms&errors=0.05&down=5s changes the faults, and
// /_faults alone returns the number of requests, of bytes of bodies, and of requests refused during outages.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// service is a proxy before the S3 server.
type service struct {
	s3              http.Handler
	requests, bytes atomic.Int64
	refused         atomic.Int64 // requests during outages

	mu      sync.Mutex
	latency time.Duration
	errors  float64
	until   time.Time // the end of an outage
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/_faults" {
		s.control(w, r)
		return
	}
	s.requests.Add(1)
	s.mu.Lock()
	latency, errors, isDown := s.latency, s.errors, time.Now().Before(s.until)
	s.mu.Unlock()
	if isDown {
		s.refused.Add(1)
		panic(http.ErrAbortHandler)
	}
	time.Sleep(latency)
	switch fault := rand.Float64() / max(errors, 1e-9); {
	case fault < .25:
		panic(http.ErrAbortHandler) // a reset
	case fault < 1:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "SlowDown", http.StatusServiceUnavailable)
		return
	}
	s.s3.ServeHTTP(&counting{w, s}, r)
}

type counting struct {
	http.ResponseWriter
	to *service
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.to.bytes.Add(int64(n))
	return n, err
}

func (s *service) control(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	if d, err := time.ParseDuration(query.Get("latency")); err == nil {
		s.latency = d
	}
	if rate, err := strconv.ParseFloat(query.Get("errors"), 64); err == nil {
		s.errors = rate
	}
	if d, err := time.ParseDuration(query.Get("down")); err == nil {
		s.until = time.Now().Add(d)
	}
	fmt.Fprintf(w, "{\"requests\": %d, \"bytes\": %d, \"refused\": %d}\n", s.requests.Load(), s.bytes.Load(),
		s.refused.Load())
}

func main() {
	dir := flag.String("dir", ".", "directory of the objects")
	flag.Parse()
	if err := run(*dir); err != nil {
		log.Fatal(err)
	}
}

func run(dir string) error {
	backend := s3mem.New()
	if err := backend.CreateBucket("data"); err != nil {
		return err
	}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			_, err = backend.PutObject("data", name, nil, f, st.Size(), nil)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("load %s: %w", dir, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return http.Serve(listener, &service{s3: gofakes3.New(backend).Server()})
}
