// Package failpoint stops, delays or kills a role at a named point, or makes its disk fail there, for tests. Without a
// specification a point does nothing. docs/failpoints.md lists the points.
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

// Env is the variable with a role's points: `name=action[:<file>][@n]`, separated by `;`. The n-th hit takes the
// action. n is 1 by default; if n is 0, every hit takes the action. The prefix `<role name>:` of a name selects one
// process. An action with a file is taken once over all processes: by the process that creates the file. The actions
// are
//
//	kill             SIGKILL to the process itself
//	stop             SIGSTOP to the process itself
//	panic            a panic
//	sleep:<duration> a pause
//	slow:<duration>:<file> a pause at every hit while the file exists
//	eio, enospc      the write or sync fails with this error; only at points of the disk (see Fault)
//	torn             half of the write reaches the file, then SIGKILL; only at points of writes (see Write)
const Env = "MILLRACE_FAILPOINTS"

// Set is the armed points of one process; nil is none. Safe for concurrent use.
type Set struct {
	points map[string]*point
	taken  func(point, action string)
}

type point struct {
	action string
	delay  time.Duration
	during string // slow: the file
	once   string // the file that marks the action as taken
	at     int64
	hits   atomic.Int64
}

// errTorn asks Write to tear the write.
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
	case "sleep", "slow":
		if len(words) == 0 {
			return "", nil, fmt.Errorf("parse failpoint %q: %s needs a duration", item, p.action)
		}
		var err error
		if p.delay, err = time.ParseDuration(words[0]); err != nil {
			return "", nil, fmt.Errorf("parse failpoint %q: %w", item, err)
		}
		words = words[1:]
		if p.action == "slow" {
			if p.at, p.during, words = 0, strings.Join(words, ":"), nil; p.during == "" {
				return "", nil, fmt.Errorf("parse failpoint %q: slow needs a file", item)
			}
		}
	default:
		return "", nil, fmt.Errorf(
			"parse failpoint %q: action is kill, stop, panic, sleep:<duration>, slow:<duration>:<file>, eio, "+
				"enospc or torn", item)
	}
	p.once = strings.Join(words, ":")
	return name, p, nil
}

// OnTaken sets a function that is called before every action, in the goroutine of the hit. Call it before the first
// hit.
func (s *Set) OnTaken(told func(point, action string)) {
	if s != nil {
		s.taken = told
	}
}

// Arms reports whether a point with this prefix is armed.
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

// Hit passes a named point, and takes its action if it is armed.
func (s *Set) Hit(name string) {
	// Only points of the disk return errors.
	_ = s.Fault(name)
}

// Fault passes a named point of the disk. The disk operation fails with the returned error.
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
	if p.during != "" {
		if _, err := os.Stat(p.during); err != nil {
			return nil
		}
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

// Write passes a named point of the disk and then writes b. It may fail, or write half of b and end the process.
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

// mark creates a file, and reports false if it exists.
func mark(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
