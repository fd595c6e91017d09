package roster

import (
	"slices"

	"millrace"
	pb "millrace/proto"
)

// mostReplaced bounds the replaced processes of one name that are remembered, about 50 bytes each. A replaced process
// is taken for a new one only if it sleeps while this number of successors start and connect. It then replaces its
// successor once, and serves.
const mostReplaced = 1000

// succession knows the processes of each name by their identities. A new process of a name replaces the one before. A
// replaced process is refused, because its successor has its place: it may have been stopped, or cut off, for long.
type succession map[string]*lineage

// lineage is the processes of one name.
type lineage struct {
	newest   string
	replaced []string // the newest of them last
}

// isReplaced reports whether another process has taken the place of this one.
func (s succession) isReplaced(name, identity string) bool {
	l := s[name]
	return l != nil && slices.Contains(l.replaced, identity)
}

// check refuses a loader whose place another process has, or is to have.
func (s succession) check(hello *pb.LoaderHello) error {
	if !s.isReplaced(hello.Name, hello.Identity) {
		return nil
	}
	return millrace.Errorf(millrace.ErrFenced, "%s (pid %d): its stripes were given to others while it was silent",
		hello.Name, hello.Pid)
}

// follow makes a process the newest of its name.
func (s succession) follow(name, identity string) {
	l := s[name]
	if l == nil {
		s[name] = &lineage{newest: identity}
		return
	}
	if l.newest != identity {
		s.replace(name, l.newest)
		l.newest = identity
	}
}

// replace notes that a process that has followed will have a successor, which may not have come yet.
func (s succession) replace(name, identity string) {
	if l := s[name]; !slices.Contains(l.replaced, identity) {
		l.replaced = append(l.replaced, identity)
		l.replaced = l.replaced[max(0, len(l.replaced)-mostReplaced):]
	}
}
