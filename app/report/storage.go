package report

import (
	"fmt"
	"io"

	"millrace/proto"
)

// Storage has the figures of a source in an object store: the sums over the processes that run now, since they started.
type Storage struct {
	Fetched  int64 `json:"fetched_bytes"` // from the store
	Used     int64 `json:"used_bytes"`    // that readers took, from the store or from the cache of files
	Requests int64 `json:"requests"`      // of ranges, with retries and hedges
	Retries  int64 `json:"retries"`
	Hedges   int64 `json:"hedges"`       // second requests beside slow ones
	Hits     int64 `json:"cache_hits"`   // blocks
	Misses   int64 `json:"cache_misses"` // blocks
	// Waited is the time of all decoders in waits for the store, in seconds.
	Waited float64 `json:"waited_seconds"`
}

// storageOf returns the figures of a source, nil if its files are local or before the first fetch.
func storageOf(source string, d *proto.Delivery) (out *Storage) {
	for _, r := range d.GetRoles() {
		for _, s := range r.Sources {
			f := s.Fetches
			if s.Source != source || f == nil {
				continue
			}
			if out == nil {
				out = &Storage{}
			}
			out.Fetched += f.Fetched
			out.Used += f.Used
			out.Requests += f.Requests
			out.Retries += f.Retries
			out.Hedges += f.Hedges
			out.Hits += f.Hits
			out.Misses += f.Misses
			for i, kind := range s.Kind {
				if kind == "storage" {
					out.Waited += s.Seconds[i]
				}
			}
		}
	}
	return out
}

// print writes one line.
func (s *Storage) print(w io.Writer, source string) {
	fmt.Fprintf(w, "storage of %s: %s fetched, %s used, %s requests, %s retries, %s hedges", source, Size(s.Fetched),
		Size(s.Used), Count(uint64(s.Requests)), Count(uint64(s.Retries)), Count(uint64(s.Hedges)))
	if blocks := s.Hits + s.Misses; blocks > 0 {
		fmt.Fprintf(w, ", %s of %s blocks from the cache", Percent(float64(s.Hits)/float64(blocks)),
			Count(uint64(blocks)))
	}
	if s.Waited >= 1 {
		fmt.Fprintf(w, ", %.0f s of waits", s.Waited)
	}
	fmt.Fprintln(w)
}
