// Package failpoint lets tests stop, delay or kill a role at a named place, or let the disk beneath it fail there. Without a
// specification every point is free. docs/failpoints.md lists the points.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Env is the variable that holds a role's points: `name=action[:<file>][@n]` separated by `;`, taken at the n-th hit (1 by default; 0 is
// every hit). A name may be prefixed by `<role name>:` to single out one process. Only the first of all lives takes an action with a
// file: the one that can make it. The actions are
//
//	kill             SIGKILL to the process itself
//	stop             SIGSTOP to the process itself
//	panic            a panic
//	sleep:<duration> a pause
//	eio, enospc      the write or sync fails so; only at points of the disk (see Fault)
//	torn             half of the write reaches the file, then SIGKILL; only where something is written (see Write)
const Env = "MILLRACE_FAILPOINTS"

// Set is the armed points of one process; nil is none. Safe for concurrent use.
type Set struct {
	points map[string]*point
	taken  func(point, action string)
}

type point struct {
	action string
	delay  time.Duration
	once   string // file that marks that it was done
	at     int64
	hits   atomic.Int64
}

// errTorn is what a torn write is until it is carried out.
var errTorn = errors.New("torn write")

// Parse reads a specification for the process called self (loader-0, orchestrator …).
func Parse(spec, self string) (*Set, error) {
	s := &Set{points: map[string]*point{}}
	for _, item := range strings.Split(spec, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if who, rest, ok := strings.Cut(item, ":"); ok && !strings.ContainsAny(who, "/=") {
			if who != self {
				continue
			}
			item = rest
		}
		name, p, err := parsePoint(item)
		if err != nil {
			return nil, err
		}
		s.points[name] = p
	}
	return s, nil
}

func parsePoint(item string) (string, *point, error) {
	name, action, ok := strings.Cut(item, "=")
	if !ok {
		return "", nil, fmt.Errorf("parse failpoint %q: want name=action[@n]", item)
	}
	p := &point{at: 1}
	action, at, counted := strings.Cut(action, "@")
	if counted {
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return "", nil, fmt.Errorf("parse failpoint %q: %w", item, err)
		}
		p.at = n
	}
	words := strings.Split(action, ":")
	p.action, words = words[0], words[1:]
	switch p.action {
	case "kill", "stop", "panic", "eio", "enospc", "torn":
	case "sleep":
		if len(words) == 0 {
			return "", nil, fmt.Errorf("parse failpoint %q: sleep needs a duration", item)
		}
		var err error
		if p.delay, err = time.ParseDuration(words[0]); err != nil {
			return "", nil, fmt.Errorf("parse failpoint %q: %w", item, err)
		}
		words = words[1:]
	default:
		return "", nil, fmt.Errorf("parse failpoint %q: action is kill, stop, panic, sleep:<duration>, eio, enospc or torn", item)
	}
	p.once = strings.Join(words, ":")
	return name, p, nil
}

// OnTaken is told of every action before it is taken, in the goroutine that came by. It is set before the first hit.
func (s *Set) OnTaken(told func(point, action string)) {
	if s != nil {
		s.taken = told
	}
}

// Arms says whether any point below a prefix is armed.
func (s *Set) Arms(prefix string) bool {
	if s != nil {
		for name := range s.points {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// Hit passes a named place.
func (s *Set) Hit(name string) {
	// At a place that is not of the disk nothing can fail.
	_ = s.Fault(name)
}

// Fault passes a named place of the disk: the error, if any, is what the disk answers there.
func (s *Set) Fault(name string) error {
	if s == nil || len(s.points) == 0 {
		return nil
	}
	p, ok := s.points[name]
	if !ok {
		return nil
	}
	if n := p.hits.Add(1); p.at != 0 && n != p.at || p.once != "" && !mark(p.once) {
		return nil
	}
	if s.taken != nil {
		s.taken(name, p.action)
	}
	switch p.action {
	case "kill":
		die()
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "panic":
		panic("failpoint " + name)
	case "eio":
		return syscall.EIO
	case "enospc":
		return syscall.ENOSPC
	case "torn":
		return errTorn
	default:
		<-time.After(p.delay)
	}
	return nil
}

// Write passes a named place where b is written.
func (s *Set) Write(name string, b []byte, write func([]byte) (int, error)) (int, error) {
	err := s.Fault(name)
	if errors.Is(err, errTorn) {
		_, _ = write(b[:len(b)/2])
		die()
	}
	if err != nil {
		return 0, err
	}
	return write(b)
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// mark makes a file that was not there.
func mark(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
