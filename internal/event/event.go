// Package event writes records of a role's acts for a checker: one JSON object per line, one file per process.
package event

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"millrace/internal/seam"
)

// Record is one act of a role. Seq counts from 1 in the process. Nanos is the monotonic time since boot, so the records
// of several processes of a host can be merged.
type Record struct {
	Seq     uint64 `json:"seq"`
	Nanos   int64  `json:"boottime_ns"`
	Role    string `json:"role"`
	Pid     int    `json:"pid"`
	Event   string `json:"event"`
	Stream  string `json:"stream,omitempty"`
	Attempt uint32 `json:"attempt,omitempty"`
	Term    uint64 `json:"term,omitempty"`
	Step    int64  `json:"step"`
	Rank    int    `json:"rank"`
	Micro   int    `json:"microbatch"`
	Key     string `json:"key,omitempty"`
	Digest  string `json:"digest,omitempty"`

	// The resources of the process, in the records start, ready and exit.
	FDs        int   `json:"fds,omitempty"`        // descriptors
	RSS        int64 `json:"rss_bytes,omitempty"`  // resident memory
	Goroutines int   `json:"goroutines,omitempty"` // of the Go runtime
}

// Log appends records to a file; a nil Log drops them. Safe for concurrent use. Every record reaches the operating
// system before Write returns, so a kill -9 loses none.
type Log struct {
	*sink
	stream string // of every record that has one; empty: the record's own
}

// sink is the file that the logs of a process share.
type sink struct {
	role  string
	clock seam.Clock
	seq   atomic.Uint64
	mu    sync.Mutex
	file  io.Closer // nil: the caller owns the writer
	buf   *bufio.Writer
}

// To returns a log that writes to w, with one Write per record. The caller owns w.
func To(w io.Writer, role string, clock seam.Clock) *Log {
	return &Log{sink: &sink{role: role, clock: clock, buf: bufio.NewWriter(w)}}
}

// Of returns a log that writes to the same file and names a stream in every record about a stream.
func (l *Log) Of(stream string) *Log {
	if l == nil {
		return nil
	}
	return &Log{l.sink, stream}
}

// Open opens dir/<role>-<pid>.jsonl for appending. For an empty dir it returns a nil Log.
func Open(dir, role string, clock seam.Clock) (*Log, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%s-%d.jsonl", role, os.Getpid())),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	return &Log{sink: &sink{role: role, clock: clock, file: f, buf: bufio.NewWriter(f)}}, nil
}

// Write stamps and appends a record. It drops errors: a lost log must not end a run.
func (l *Log) Write(r Record) {
	if l == nil {
		return
	}
	if r.Stream != "" && l.stream != "" {
		r.Stream = l.stream
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Seq, r.Nanos, r.Role, r.Pid = l.seq.Add(1), l.clock.Boottime(), l.role, os.Getpid()
	if err := json.NewEncoder(l.buf).Encode(r); err == nil {
		_ = l.buf.Flush()
	}
}

// Close closes the file.
func (l *Log) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
