package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

const (
	maxLine    = 64 << 10 // bytes; a longer line is split
	maxCrash   = 8 << 20  // bytes of a crash file
	maxCrashes = 1000     // crash files of one child
)

// runtimeDump matches the first line that the Go runtime prints when a program crashes.
var runtimeDump = regexp.MustCompile(
	`^(panic: |fatal error: |goroutine \d+ |runtime: |SIG[A-Z]+: |unexpected fault address |\[signal SIG)`)

// noThread matches the line of Go's runtime, or of its part in C, about a thread that the host did not give. The
// process then ends with a dump.
var noThread = regexp.MustCompile(
	`^(runtime/cgo: pthread_create failed|runtime: failed to create new OS thread|runtime: may need to increase max)`)

// headline matches the line of a dump that names the fault.
var headline = regexp.MustCompile(`^(panic: |fatal error: |SIG[A-Z]+: )`)

// syncWriter lets several children write whole lines to one place.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) line(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.w.Write(append(b, '\n')) // without stderr the error cannot be reported
}

// heard is the output of earlier short lives of a child that waits for something. The child repeats this output in
// every life, and the supervisor prints it once.
type heard struct {
	lines map[string]bool // without the logger's time
	last  string          // the last line, without digits: it may name another file each time
}

// maxHeard bounds the lines.
const maxHeard = 64

// stamp matches the beginning of a logger's line.
var stamp = regexp.MustCompile(`^time=[^ ]* `)

func timeless(b []byte) string { return string(stamp.ReplaceAll(b, nil)) }

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// has reports whether an earlier life printed the line.
func (h *heard) has(b []byte) bool {
	return h.lines[timeless(b)] || h.last != "" && h.last == withoutDigits(string(b))
}

// with returns the lines of h and of a further life.
func (h *heard) with(last string, said map[string]bool) heard {
	out := heard{lines: maps.Clone(said), last: withoutDigits(last)}
	if out.lines == nil {
		out.lines = map[string]bool{}
	}
	maps.Copy(out.lines, h.lines)
	return out
}

// lineWriter writes one process's output line by line and keeps the last line. From the first line of a runtime dump
// on, lines go to a crash file instead. One goroutine writes; the fields are read after its end.
type lineWriter struct {
	out  *syncWriter
	dir  string // run directory, for the crash file
	name string
	mute heard // lines that are not written again

	said    map[string]bool // the first lines written, without the logger's time
	partial []byte
	last    string
	crash   *os.File
	path    string // of the crash file
	dumping bool
	named   bool // last is a dump's headline
	starved bool // the process got no thread
	room    int  // bytes that the crash file may still grow
}

// Write implements io.Writer. It never fails.
func (l *lineWriter) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		l.line(append(l.partial, b[:i]...))
		l.partial, b = l.partial[:0], b[i+1:]
	}
	l.partial = append(l.partial, b...)
	if len(l.partial) >= maxLine {
		l.line(l.partial)
		l.partial = l.partial[:0]
	}
	return n, nil
}

// finish writes a last line that has no newline, and closes the crash file.
func (l *lineWriter) finish() {
	if len(l.partial) > 0 {
		l.line(l.partial)
		l.partial = nil
	}
	if l.crash != nil {
		l.crash.Close()
	}
}

func (l *lineWriter) line(b []byte) {
	if noThread.Match(b) && !l.starved {
		l.starved = true
		l.last, l.named = string(b), true
	}
	if !l.dumping && runtimeDump.Match(b) {
		l.dumping, l.room = true, maxCrash
		l.crash, l.path = createCrash(l.dir, l.name)
	}
	if l.dumping {
		l.dump(b)
		return
	}
	if len(bytes.TrimSpace(b)) > 0 {
		l.last = string(b)
	}
	if l.mute.has(b) {
		return
	}
	if l.said == nil {
		l.said = map[string]bool{}
	}
	if len(l.said) < maxHeard {
		l.said[timeless(b)] = true
	}
	l.out.line(b)
}

func (l *lineWriter) dump(b []byte) {
	if !l.named {
		l.last = string(b)
		l.named = headline.Match(b)
	}
	if bytes.HasPrefix(b, []byte("[signal SIGBUS")) {
		l.last = "a mapped file cannot be read: the file system of index_dir or of the run directory is gone or full"
	}
	if l.crash == nil || l.room < len(b)+1 {
		return
	}
	l.room -= len(b) + 1
	_, _ = l.crash.Write(append(b, '\n')) // on a full disk only the stack is lost
}

// createCrash creates the first free RUNDIR/crash-<name>-<n>.log. It returns nil if it fails.
func createCrash(dir, name string) (*os.File, string) {
	for n := 1; n <= maxCrashes; n++ {
		path := filepath.Join(dir, fmt.Sprintf("crash-%s-%d.log", name, n))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			return f, path
		}
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return nil, ""
}
