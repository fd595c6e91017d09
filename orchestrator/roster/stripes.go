package roster

import (
	"slices"
	"strings"

	pb "millrace/proto"
)

// Source is a source and the owners of its stripes.
type Source struct {
	Name    string
	Loaders []string // by stripe
}

// member is a connected loader process. All loaders run the same program; a shadow is a member that owns no stripe.
type member struct {
	name, address, beat string
	pid                 int64
	session             Session
	asked, opened       map[string]bool   // sources that it was told to open, and whose manifest was accepted
	trouble             map[string]string // by source: why reading it fails for now
	leaving             bool
}

// stripe is a part of a source, its primary and its standby.
type stripe struct {
	source, index    int
	name             string // of the source
	owner            string // the member that reads it in the configuration
	primary, standby grant
	from             uint64 // first step of the next primary; 0 is the first that is not sealed
	reason           string // why the last primary was lost
}

// grant is a stripe in the hands of a process, under a term that no other grant of the stripe has. A standby's term is
// higher than its primary's.
type grant struct {
	member *member // nil: none
	term   uint64
	ready  bool // of a standby: it said that it can take over at once
}

// canReplace reports whether a standby can take over from a primary at once.
func (g grant) canReplace(primary grant) bool {
	return g.member != nil && g.ready && g.term > primary.term
}

// isProtected reports whether the stripe has a reader and a standby that can take over at once.
func (st *stripe) isProtected() bool {
	return st.primary.member != nil && st.standby.canReplace(st.primary)
}

// assignment returns a journal record about the stripe, without a member.
func (st *stripe) assignment(up string) *pb.Assigned {
	return &pb.Assigned{Source: st.name, Stripe: uint32(st.index), Up: up}
}

type key struct {
	source string
	index  uint32
}

// stripes are all stripes of a run, and who holds them.
type stripes struct {
	all      []*stripe   // by source and index
	bySource [][]*stripe // the same
	byKey    map[key]*stripe
}

func newStripes(sources []Source) stripes {
	t := stripes{bySource: make([][]*stripe, len(sources)), byKey: map[key]*stripe{}}
	for i, src := range sources {
		for index, owner := range src.Loaders {
			st := &stripe{source: i, index: index, name: src.Name, owner: owner}
			t.all, t.bySource[i] = append(t.all, st), append(t.bySource[i], st)
			t.byKey[key{src.Name, uint32(index)}] = st
		}
	}
	return t
}

// get returns nil if the run has no such stripe.
func (t *stripes) get(source string, index uint32) *stripe { return t.byKey[key{source, index}] }

// isOwner reports whether the configuration gives stripes to a loader of that name.
func (t *stripes) isOwner(name string) bool {
	return slices.ContainsFunc(t.all, func(st *stripe) bool { return st.owner == name })
}

// held counts the stripes that a member is primary of.
func (t *stripes) held(l *member) (n int) {
	for _, st := range t.all {
		if st.primary.member == l {
			n++
		}
	}
	return n
}

// isFree reports whether a member has nothing of its own to read: it owns no stripe, or others read all stripes that it
// owns.
func (t *stripes) isFree(l *member) bool {
	return !slices.ContainsFunc(t.all, func(st *stripe) bool {
		return st.owner == l.name && (st.primary.member == nil || st.primary.member == l)
	})
}

// readers lists the members that read a source, and those that follow it if followers is set, each once, by name.
func (t *stripes) readers(source int, followers bool) (out []*member) {
	for _, st := range t.bySource[source] {
		for _, l := range []*member{st.primary.member, st.standby.member} {
			if l != nil && (l == st.primary.member || followers) && !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	return out
}

// highestTerm returns the highest term under which a member holds a stripe, and whether it holds any.
func (t *stripes) highestTerm(l *member) (term uint64, ok bool) {
	for _, st := range t.all {
		for _, g := range []grant{st.primary, st.standby} {
			if g.member == l {
				term, ok = max(term, g.term), true
			}
		}
	}
	return term, ok
}

// AllSources stands for the sources together.
const AllSources = -1

// unprotected counts the stripes of a source, or of AllSources, without a ready standby.
func (t *stripes) unprotected(source int) (n uint32) {
	for _, st := range t.all {
		if (source == AllSources || st.source == source) && !st.isProtected() {
			n++
		}
	}
	return n
}

// directory names the loader of each stripe that has one, and its standby if that is ready.
func (t *stripes) directory() *pb.Loaders {
	dir := &pb.Loaders{}
	for _, st := range t.all {
		p := st.primary
		if p.member == nil {
			continue
		}
		entry := &pb.LoaderStripe{
			Source:  st.name,
			Stripe:  uint32(st.index),
			Stripes: uint32(len(t.bySource[st.source])),
			Term:    p.term,
			Address: p.member.address,
			Name:    p.member.name,
			Beat:    p.member.beat,
		}
		if s := st.standby; s.canReplace(p) {
			entry.Standby = &pb.Standby{
				Term:    s.term,
				Address: s.member.address,
				Name:    s.member.name,
				Beat:    s.member.beat,
			}
		}
		dir.Stripes = append(dir.Stripes, entry)
	}
	return dir
}
