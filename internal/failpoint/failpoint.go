// Package failpoint lets tests stop, delay or kill a role at a named place. Without a specification every point is free.
package failpoint

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Env is the variable that holds a role's points: `name=action[@n]` separated by `;`, where action is kill, panic, or sleep:<duration>,
// taken at the n-th hit (1 by default; 0 is every hit). A name may be prefixed by `<role name>:` to single out one process, and
// `kill:<file>` kills only the first of all lives: the one that can make the file.
const Env = "MILLRACE_FAILPOINTS"

// Set is the armed points of one process; nil is none. Safe for concurrent use.
type Set struct{ points map[string]*point }

type point struct {
	action string
	delay  time.Duration
	once   string // file that marks that it was done
	at     int64
	hits   atomic.Int64
}

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
	p.action = action
	if d, ok := strings.CutPrefix(action, "sleep:"); ok {
		var err error
		if p.delay, err = time.ParseDuration(d); err != nil {
			return "", nil, fmt.Errorf("parse failpoint %q: %w", item, err)
		}
		return name, p, nil
	}
	if file, ok := strings.CutPrefix(action, "kill:"); ok {
		p.action, p.once = "kill", file
		return name, p, nil
	}
	if action != "kill" && action != "panic" {
		return "", nil, fmt.Errorf("parse failpoint %q: action is kill, panic or sleep:<duration>", item)
	}
	return name, p, nil
}

// Hit passes a named place.
func (s *Set) Hit(name string) {
	if s == nil || len(s.points) == 0 {
		return
	}
	p, ok := s.points[name]
	if !ok {
		return
	}
	if n := p.hits.Add(1); p.at != 0 && n != p.at {
		return
	}
	switch p.action {
	case "kill":
		if p.once != "" && !mark(p.once) {
			return
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "panic":
		panic("failpoint " + name)
	default:
		<-time.After(p.delay)
	}
}

// mark makes a file that was not there.
func mark(path string) bool {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return false
	}
	return f.Close() == nil
}
