package roster

import (
	"slices"
	"strings"

	pb "millrace/proto"
)

// Source is a source and its stripes.
type Source struct {
	Name     string
	Stripes  int
	Work     int64 // of each stripe, in any unit; 0: 1
	Resident int64 // bytes that a loader holds for the source
}

// member is a connected loader process. All loaders run the same program; a shadow is a member that owns no stripe.
type member struct {
	name          string
	hello         *pb.LoaderHello // immutable
	session       Session
	asked, opened map[string]bool   // sources that it was asked to open, and those whose manifest was accepted
	trouble       map[string]string // by source: why reading it fails for now
	cache         *pb.CacheFigures  // newest; nil: it has no token cache, or has not reported it
	leaving       bool
	forGood       bool       // it leaves, and no process of its name follows
	spare         bool       // it is beyond the wished number of loaders
	held          []*pb.Drop // the stripes that it held when it connected
	pending       pending    // to be sent at the end of the turn
}

// stripe is a part of a source, its primary and its standby.
type stripe struct {
	source, index    int
	name             string // of the source
	owner            string // the loader that reads it, or is to read it; empty: it has none yet
	primary, standby grant
	from             uint64          // first step of the next primary; 0 is the first that is not sealed
	reason           string          // why the last primary was lost
	last             *pb.LoaderHello // of the last primary, which was lost; nil: none was

	isNews bool // in stripes.news
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

type key struct {
	source string
	index  uint32
}

// stripes are all stripes of a run, and who holds them.
type stripes struct {
	all      []*stripe   // by source and index
	bySource [][]*stripe // the same
	byKey    map[key]*stripe
	owned    map[string]int // by owner: how many stripes it owns
	news     []*stripe      // in other hands since the directory was taken
	// Counts, so that a turn looks at no stripe without news. hold keeps them.
	unread      int      // stripes without a primary
	unprotected []uint32 // by source: stripes without a ready standby
	gaps        uint32   // their sum
}

func newStripes(sources []Source) stripes {
	t := stripes{bySource: make([][]*stripe, len(sources)), byKey: map[key]*stripe{}, owned: map[string]int{},
		unprotected: make([]uint32, len(sources))}
	for i, src := range sources {
		for index := range src.Stripes {
			st := &stripe{source: i, index: index, name: src.Name}
			t.all, t.bySource[i] = append(t.all, st), append(t.bySource[i], st)
			t.byKey[key{src.Name, uint32(index)}] = st
			t.unread, t.gaps, t.unprotected[i] = t.unread+1, t.gaps+1, t.unprotected[i]+1
		}
	}
	return t
}

// own makes a loader the owner of a stripe; with "" the stripe has no owner.
func (t *stripes) own(st *stripe, owner string) {
	if t.owned[st.owner]--; t.owned[st.owner] <= 0 {
		delete(t.owned, st.owner)
	}
	if st.owner = owner; owner != "" {
		t.owned[owner]++
	}
}

// hold gives a stripe into other hands and keeps the counts.
func (t *stripes) hold(st *stripe, primary, standby grant) {
	wasRead, wasProtected := st.primary.member != nil, st.isProtected()
	st.primary, st.standby = primary, standby
	switch isRead := primary.member != nil; {
	case isRead && !wasRead:
		t.unread--
	case wasRead && !isRead:
		t.unread++
	}
	switch protected := st.isProtected(); {
	case protected && !wasProtected:
		t.gaps, t.unprotected[st.source] = t.gaps-1, t.unprotected[st.source]-1
	case wasProtected && !protected:
		t.gaps, t.unprotected[st.source] = t.gaps+1, t.unprotected[st.source]+1
	}
	if !st.isNews {
		st.isNews, t.news = true, append(t.news, st)
	}
}

// get returns nil if the run has no such stripe.
func (t *stripes) get(source string, index uint32) *stripe { return t.byKey[key{source, index}] }

// isOwner reports whether a loader of that name owns stripes.
func (t *stripes) isOwner(name string) bool { return t.owned[name] > 0 }

// held counts the stripes that a member is primary of.
func (t *stripes) held(l *member) (n int) {
	for _, st := range t.all {
		if st.primary.member == l {
			n++
		}
	}
	return n
}

// isFree reports whether a member has no stripe of its own to read: it owns none, or others read all that it owns. A
// spare loader is not free.
func (t *stripes) isFree(l *member) bool {
	return !l.spare && !slices.ContainsFunc(t.all, func(st *stripe) bool {
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

// AllSources means all sources together.
const AllSources = -1

// countUnprotected counts the stripes of a source, or of AllSources, without a ready standby.
func (t *stripes) countUnprotected(source int) uint32 {
	if source == AllSources {
		return t.gaps
	}
	return t.unprotected[source]
}

// directory names the loader of each stripe that has one, and its standby if that is ready.
func (t *stripes) directory() *pb.Loaders {
	dir := &pb.Loaders{}
	for _, st := range t.all {
		if st.primary.member != nil {
			dir.Stripes = append(dir.Stripes, t.entry(st))
		}
	}
	return dir
}

// takeNews returns the entries of the stripes that are in other hands since the last call, those without a reader too.
func (t *stripes) takeNews() *pb.Loaders {
	dir := &pb.Loaders{News: true}
	for _, st := range t.news {
		st.isNews = false
		dir.Stripes = append(dir.Stripes, t.entry(st))
	}
	t.news = nil
	return dir
}

// entry names the loader of a stripe, if it has one, and its standby if that is ready.
func (t *stripes) entry(st *stripe) *pb.LoaderStripe {
	entry := &pb.LoaderStripe{Source: st.name, Stripe: uint32(st.index), Stripes: uint32(len(t.bySource[st.source]))}
	p := st.primary
	if p.member == nil {
		return entry
	}
	h := p.member.hello
	entry.Term, entry.Name, entry.Host, entry.Up = p.term, h.Name, h.Host, h.Up
	entry.Address, entry.Remote, entry.Beat = h.Address, h.Remote, h.Beat
	if s := st.standby; s.canReplace(p) {
		h := s.member.hello
		entry.Standby = &pb.Standby{Term: s.term, Name: h.Name, Host: h.Host, Up: h.Up,
			Address: h.Address, Remote: h.Remote, Beat: h.Beat}
	}
	return entry
}
