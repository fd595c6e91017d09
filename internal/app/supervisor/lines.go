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
	maxLine    = 64 << 10 // a longer line is passed on in parts
	maxCrash   = 8 << 20  // bytes of a crash that are kept
	maxCrashes = 1000     // crash files of one child
)

// runtimeDump matches the first line of what the Go runtime prints when a program dies of its own fault.
var runtimeDump = regexp.MustCompile(`^(panic: |fatal error: |goroutine \d+ |runtime: |SIG[A-Z]+: |unexpected fault address |\[signal SIG)`)

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
	_, _ = s.w.Write(append(b, '\n')) // nobody is left to tell when stderr is gone
}

// refrain is what a child said in short lives that ended because something lacks: it will say the same again and again, and is to be heard
// once.
type refrain struct {
	lines map[string]bool // without the logger's time
	last  string          // the last line, without digits: it may name another file each time
}

// maxRefrain bounds a refrain's lines.
const maxRefrain = 64

// stamp is how a logger's line begins.
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

// has tells whether a line was said before.
func (r *refrain) has(b []byte) bool {
	return r.lines[timeless(b)] || r.last != "" && r.last == withoutDigits(string(b))
}

// with is the refrain after another life.
func (r *refrain) with(last string, said map[string]bool) refrain {
	out := refrain{lines: maps.Clone(said), last: withoutDigits(last)}
	if out.lines == nil {
		out.lines = map[string]bool{}
	}
	maps.Copy(out.lines, r.lines)
	return out
}

// lineWriter passes one process's output on by lines and keeps the last. From the first line of a runtime dump on, lines go to a
// crash file instead. It is written by one goroutine and read after that has ended.
type lineWriter struct {
	out  *syncWriter
	dir  string // run directory, for the crash file
	name string
	mute refrain // is not passed on

	said    map[string]bool // the first lines passed on, without the logger's time
	partial []byte
	last    string
	crash   *os.File
	path    string // of the crash file
	dumping bool
	named   bool // last is a dump's headline
	room    int  // bytes the crash file may still take
}

// Write implements io.Writer; it never fails.
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

// finish flushes a last line without end and closes the crash file.
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
	if len(l.said) < maxRefrain {
		l.said[timeless(b)] = true
	}
	l.out.line(b)
}

func (l *lineWriter) dump(b []byte) {
	if !l.named {
		l.last = string(b)
		l.named = headline.Match(b)
	}
	if l.crash == nil || l.room < len(b)+1 {
		return
	}
	l.room -= len(b) + 1
	_, _ = l.crash.Write(append(b, '\n')) // a full disk costs the stack, not the run
}

// createCrash makes the first free RUNDIR/crash-<name>-<n>.log; nil where it cannot.
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
