package up

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"millrace/app/exit"
	"millrace/app/roles"
)

// Serving is the ranks that a command serves.
type Serving struct {
	Ranks, First int
	Index        int    // number of this host; -1: First counts
	Users        []uint // whose trainers may connect, beside this one
}

// Resolve derives the first rank from the number of this host.
func (s *Serving) Resolve(command string) error {
	switch {
	case s.Index < -1:
		return exit.Usagef("%s: --index %d: want 0 or more", command, s.Index)
	case s.Index >= 0 && s.First != 0:
		return exit.Usagef("%s: --index %d beside --first-rank %d: write one of them", command, s.Index, s.First)
	case s.Index >= 0:
		s.First = s.Index * s.Ranks
	}
	return nil
}

// Args returns the flags of the sidecar alone.
func (s *Serving) Args() []string {
	out := []string{"--first-rank", strconv.Itoa(s.First)}
	for _, user := range s.Users {
		out = append(out, "--allow-uids", strconv.FormatUint(uint64(user), 10))
	}
	return out
}

// A name is part of file names, of keys in etcd and of lines for people. Names with two numbers are those of the
// processes that an `up` on one of several hosts starts.
var (
	goodName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._:-]{0,62}$`)
	ownName  = regexp.MustCompile(`^(loader|shadow)-[0-9]+-[0-9]+$`)
)

// checkName refuses a name that a process of a single role cannot have.
func (u *Up) checkName() error {
	switch isReader := u.Role == roles.LoaderRole || u.Role == roles.ShadowRole; {
	case u.Name == "" && isReader:
		return fmt.Errorf("--name is missing: write a name that no other process of the run has, such as %s-3", u.Role)
	case u.Name == "":
		return nil
	case !goodName.MatchString(u.Name):
		return fmt.Errorf("--name %q: want a letter, and then at most 62 letters, digits, dots and dashes", u.Name)
	case ownName.MatchString(u.Name):
		return fmt.Errorf("--name %s: names with two numbers are those of `millrace up`: write one number", u.Name)
	}
	return nil
}

// handOverGrace is the time that a loader has to hand over its stripes and to leave.
const handOverGrace = 25 * time.Second

// StopGrace returns the time from the wish to stop until children are killed; 0: the default.
func (u *Up) StopGrace() time.Duration {
	if u.Role == roles.LoaderRole || u.Role == roles.ShadowRole {
		return handOverGrace
	}
	return 0
}
