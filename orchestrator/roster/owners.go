package roster

import (
	"cmp"
	"slices"
	"time"

	"millrace/orchestrator/roster/share"
	pb "millrace/proto"
)

// The waits for loaders that are not there.
const (
	firstWait = 5 * time.Second  // for those that are expected, before anything is read
	goneFor   = 10 * time.Second // a loader that is away for longer owns no stripes any more
)

// mostMoves is how many stripes move to other readers at the same time: such a stripe has no other standby meanwhile.
const mostMoves = 4

// ownership says who owns the stripes, and which loaders are beyond the wished number.
type ownership struct {
	owners []string // by stripe; "" for one that waits for its owner
	spare  map[string]bool
	// waits is set while a loader is away that may come back, or that is expected.
	waits bool
}

// Resize sets how many loaders read, at least one. Those beyond it hand over their stripes, the last ones by
// share.Compare first. Then they wait, connected and idle, until the engine ends them or the number grows. Before the
// first call, all loaders read.
func (r *Roster) Resize(loaders int) {
	if loaders = max(loaders, 1); r.limit != loaders {
		r.limit, r.unshared, r.unsettled = loaders, true, true
	}
}

// Loader is a connected loader.
type Loader struct {
	Name, Host string
	Stripes    int  // that it reads
	IsSpare    bool // it is beyond the wished number; without stripes, its end costs nothing
}

// Loaders lists the connected loaders in the order in which they get stripes. Shadows are not among them.
func (r *Roster) Loaders() (out []Loader) {
	for _, l := range r.members {
		if !l.hello.Standby {
			out = append(out, Loader{l.name, l.hello.Host, r.stripes.held(l), l.spare})
		}
	}
	slices.SortFunc(out, func(a, b Loader) int { return share.Compare(a.Name, b.Name) })
	return out
}

// ownership decides anew which member owns which stripe. nil: its inputs have not changed.
func (c *chooser) ownership() *ownership {
	if !c.unshared {
		return nil
	}
	loaders, waits := c.candidates()
	out := &ownership{owners: make([]string, len(c.stripes.all)), spare: map[string]bool{}, waits: waits}
	if c.limit > 0 {
		for _, name := range loaders[min(c.limit, len(loaders)):] {
			out.spare[name] = true
		}
		loaders = loaders[:min(c.limit, len(loaders))]
	}
	stripes := make([]share.Stripe, len(c.stripes.all))
	for i, st := range c.stripes.all {
		src := &c.cfg.Sources[st.source]
		stripes[i] = share.Stripe{Source: st.source, Owner: cmp.Or(st.owner, c.lastReader(st)),
			Work: max(src.Work, 1), Resident: src.Resident}
	}
	if c.isExpecting(len(loaders)) { // the stripes of those that are there need not wait
		out.waits = true
		for i, st := range stripes {
			if slices.Contains(loaders, st.Owner) {
				out.owners[i] = st.Owner
			}
		}
		return out
	}
	if len(loaders) == 0 { // shadows read, or no member does
		for i, st := range c.stripes.all {
			out.owners[i] = st.owner
		}
		return out
	}
	out.owners = share.Assign(stripes, loaders, c.cfg.Memory)
	return out
}

// isExpecting reports whether so few loaders are there that the others are waited for: a moment if the run has been
// read by processes that are there, or else longer.
func (c *chooser) isExpecting(there int) bool {
	if c.isShared || there >= c.cfg.Loaders {
		return false
	}
	wait := firstWait
	for _, st := range c.stripes.all {
		if c.lastReader(st) != "" {
			wait = Absence
			break
		}
	}
	return c.now.Sub(c.began) < wait
}

// candidates lists the loaders that may own stripes, in their order: those that are connected and do not leave for
// good, and owners that may come back. waits is set if there is one of the latter.
func (c *chooser) candidates() (names []string, waits bool) {
	for _, l := range c.members {
		if !l.hello.Standby && !l.forGood {
			names = append(names, l.name)
		}
	}
	for owner := range c.stripes.owned {
		if c.members[owner] == nil && !c.isMissed(owner) {
			names, waits = append(names, owner), true
		}
	}
	slices.SortFunc(names, share.Compare)
	return names, waits
}

// isMissed reports whether an owner has been away for longer than its stripes can wait for it.
func (c *chooser) isMissed(owner string) bool {
	return c.isGone(owner, goneFor) || c.isGone(owner, Absence) &&
		slices.ContainsFunc(c.stripes.all, func(st *stripe) bool {
			return st.owner == owner && st.primary.member == nil && c.substitute(st, nil) == nil
		})
}

// apply carries out an ownership.
func (o *ownership) apply(r *Roster) {
	r.unshared, r.waits, r.isShared = false, o.waits, true
	for i, st := range r.stripes.all {
		if o.owners[i] != st.owner {
			r.stripes.own(st, o.owners[i])
			r.newcomers = true // the owner may have to open the source
		}
		r.isShared = r.isShared && o.owners[i] != ""
	}
	for _, l := range r.members {
		if l.spare = o.spare[l.name]; !l.spare {
			continue
		}
		for _, st := range r.stripes.all {
			if st.standby.member == l {
				r.drop(st, st.standby)
				r.stripes.hold(st, st.primary, grant{})
			}
		}
	}
}

// destination returns the member to which a stripe is to move from its reader, nil if it stays. A shadow that took over
// from a loader keeps the stripe while the loader has nothing else to read: the two have swapped roles.
func (c *chooser) destination(st *stripe) *member {
	from, to := st.primary.member, c.members[st.owner]
	if from == nil || to == nil || from == to || to.leaving {
		return nil
	}
	if from.hello.Standby && !from.leaving && c.stripes.held(to) == 0 {
		return nil
	}
	return to
}

// destined lists the stripes that are to move to a member.
func (c *chooser) destined(l *member) (out []*stripe) {
	for _, st := range c.stripes.all {
		if st.owner == l.name && c.destination(st) == l {
			out = append(out, st)
		}
	}
	return out
}

// isAnyIdle reports whether a loader reads nothing although stripes are to move to it.
func (c *chooser) isAnyIdle() bool {
	return slices.ContainsFunc(c.sorted, func(l *member) bool {
		return !l.hello.Standby && c.stripes.held(l) == 0 && len(c.destined(l)) > 0
	})
}

// moves gives the stripes to their owners that follow them and are ready.
func (c *chooser) moves() (out []*pb.Assigned) {
	for _, st := range c.stripes.all {
		if to := c.destination(st); to != nil && st.standby.member == to && st.standby.canReplace(st.primary) {
			a := c.assignment(st, st.standby)
			a.Reason = st.primary.member.name + " hands it over"
			out = append(out, a)
		}
	}
	return out
}

// linger is how long a reader serves a stripe that has moved: requests to it are under way.
const linger = 2 * time.Second

// former is a reader that a stripe has left.
type former struct {
	stripe *stripe
	grant  grant
	since  time.Time
}

// dropFormers lets former readers drop the stripes that they have kept for long enough.
func (r *Roster) dropFormers() {
	r.formers = slices.DeleteFunc(r.formers, func(f former) bool {
		if r.members[f.grant.member.name] != f.grant.member {
			return true // its process or its connection is another one
		}
		if r.now.Sub(f.since) < linger {
			return false
		}
		r.drop(f.stripe, f.grant) // under its term alone
		return true
	})
}

// dropLeftovers lets members drop the stripes that they held before their stream began, and that others hold now.
func (r *Roster) dropLeftovers() {
	if r.stripes.unread > 0 {
		return
	}
	for _, l := range r.sortedMembers() {
		for _, held := range l.held {
			st := r.stripes.get(held.Source, held.Stripe)
			if st == nil || st.primary.member != l && st.standby.member != l {
				r.order(l, &pb.LoaderOrder{Order: &pb.LoaderOrder_Drop{Drop: held}})
			}
		}
		l.held = nil
	}
}
