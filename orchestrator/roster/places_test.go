package roster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	pb "millrace/proto"
)

// fleet is hosts with loaders and shadows. A name has the host, as in loader-a-0. A stripe belongs to each loader.
type fleet struct {
	*world
	hosts  []string
	lives  int
	each   int            // loaders of each host
	shadow map[string]int // by host
}

func newFleet(t *testing.T, loaders int, shadows map[string]int) *fleet {
	f := &fleet{hosts: slices.Sorted(maps.Keys(shadows)), each: loaders, shadow: shadows}
	f.world = newWorldOf(t, loaders*len(f.hosts))
	return f
}

// members lists the names of a host.
func (f *fleet) members(host string) (names []string) {
	for i := range f.each {
		names = append(names, fmt.Sprintf("loader-%s-%d", host, i))
	}
	for i := range f.shadow[host] {
		names = append(names, fmt.Sprintf("shadow-%s-%d", host, i))
	}
	return names
}

// come connects new processes of some hosts, in a random order.
func (f *fleet) come(rng *rand.Rand, hosts ...string) {
	f.t.Helper()
	f.lives++
	var names []string
	for _, host := range hosts {
		names = append(names, f.members(host)...)
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		host := strings.Split(name, "-")[1]
		hello := &pb.LoaderHello{Name: name, Identity: fmt.Sprint(name, f.lives), Host: host,
			Up: fmt.Sprint("up of ", host, f.lives), Standby: strings.HasPrefix(name, "shadow")}
		if err := f.tryConnect(hello); err != nil {
			f.t.Fatal(err)
		}
	}
}

// vanish ends the sessions of a host's members.
func (f *fleet) vanish(host string) {
	for _, name := range f.members(host) {
		f.roster.Disconnect(f.loaders[name], name)
	}
}

// ready lets all standbys say that they can take over, until none moves any more.
func (f *fleet) ready() {
	f.t.Helper()
	for range 100 {
		term := f.journal.Term
		for _, st := range f.roster.stripes.all {
			if l := st.standby.member; l != nil {
				f.roster.Ready(l.session, l.name,
					&pb.Ready{Source: "web", Stripe: uint32(st.index), Term: st.standby.term})
			}
		}
		unprotected := f.roster.Unprotected(AllSources)
		if f.settle(); f.roster.Unprotected(AllSources) > unprotected+1 {
			f.t.Fatalf("%d stripes lost their standby at once", f.roster.Unprotected(AllSources)-unprotected)
		}
		if f.journal.Term == term {
			return
		}
	}
	f.t.Fatal("standbys move without end")
}

// check checks that every stripe has a reader, and a ready standby on another host. No member of another host that
// reads nothing follows much less.
func (f *fleet) check(when string) {
	f.t.Helper()
	f.ready()
	follows := map[*member]int{}
	for _, st := range f.roster.stripes.all {
		follows[st.standby.member]++
	}
	for _, st := range f.roster.stripes.all {
		reader, standby := st.primary.member, st.standby.member
		if !st.isProtected() || reader.hello.Host == standby.hello.Host {
			f.t.Fatalf("%s: stripe %d has reader %s, standby %s", when, st.index, name(reader), name(standby))
		}
		for _, l := range f.roster.members {
			if l.hello.Host != reader.hello.Host && f.roster.stripes.held(l) == 0 && f.roster.stripes.isFree(l) &&
				follows[l] < follows[standby]-1 {
				f.t.Errorf("%s: %s follows %d stripes, and %s %d", when, standby.name, follows[standby], l.name,
					follows[l])
			}
		}
	}
}

func name(l *member) string {
	if l == nil {
		return "none"
	}
	return l.name
}

// TestAHostIsLostAndReturns: a stripe's standby is on another host. When a host vanishes, the standbys of all its
// stripes take over in one decision, and the stripes get standbys on the hosts that are left. When the host is back,
// its members stand by.
func TestAHostIsLostAndReturns(t *testing.T) {
	for _, hosts := range []int{2, 3} {
		for seed := range uint64(30) {
			rng := rand.New(rand.NewPCG(seed, 3))
			shadows := map[string]int{"a": 2, "b": 2, "c": 2}
			if hosts == 2 {
				delete(shadows, "c")
			}
			f := newFleet(t, 2, shadows)
			f.come(rng, f.hosts...)
			f.check("at first")
			lost := f.hosts[rng.IntN(hosts)]
			heirs := map[int]grant{}
			for _, st := range f.roster.stripes.all {
				if st.primary.member.hello.Host == lost {
					heirs[st.index] = st.standby
				}
			}
			f.vanish(lost)
			d := f.roster.Decide(f.journal)
			for d.owners != nil {
				f.roster.Settle(d)
				d = f.roster.Decide(f.journal)
			}
			if len(d.Assigned) != len(heirs) || len(heirs) == 0 {
				t.Fatalf("%d hosts, seed %d: %d assignments for %d stripes", hosts, seed, len(d.Assigned), len(heirs))
			}
			for _, a := range d.Assigned {
				if heir := heirs[int(a.Stripe)]; a.Standby || a.Member != heir.member.name || a.Term != heir.term {
					t.Fatalf("%d hosts, seed %d: %v, want %s under term %d", hosts, seed, a, heir.member.name,
						heir.term)
				}
			}
			f.settle()
			if hosts > 2 {
				f.check("without a host")
			}
			f.come(rng, lost)
			f.check("with the host back")
			if len(f.fenced) > 0 {
				t.Fatalf("processes of another host were reported: %v", f.fenced)
			}
		}
	}
}

// TestAStandbyMovesToAnotherHost: while no member of another host can follow a stripe, one of the primary's host does.
// It gives way to one of another `up`, and that one to one of another host.
func TestAStandbyMovesToAnotherHost(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ name, host, up, want string }{
		{"loader-0", "a", "1", "none"},
		{"shadow-a", "a", "1", "shadow-a"},
		{"shadow-b", "a", "2", "shadow-b"},
		{"shadow-c", "b", "3", "shadow-c"},
		{"shadow-d", "b", "3", "shadow-c"},
		{"shadow-e", "a", "1", "shadow-c"},
	} {
		hello := &pb.LoaderHello{Name: c.name, Identity: c.name, Host: c.host, Up: c.up, Standby: c.name[0] == 's'}
		if err := w.tryConnect(hello); err != nil {
			t.Fatal(err)
		}
		if got := name(w.roster.stripes.all[0].standby.member); got != c.want {
			t.Errorf("with %s the standby is %s, want %s", c.name, got, c.want)
		}
	}
}

// TestAStripeWithoutStandbyLeavesItsHost: its reader was lost, and the next one is on another host. That of the least
// load is preferred.
func TestAStripeWithoutStandbyLeavesItsHost(t *testing.T) {
	w := newWorld(t)
	join := func(name, host string) {
		hello := &pb.LoaderHello{Name: name, Identity: name, Host: host, Up: "up of " + host, Standby: name[0] == 's'}
		if err := w.tryConnect(hello); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"loader-0 a", "shadow-a a", "shadow-b b"} {
		at := strings.Fields(name)
		join(at[0], at[1])
	}
	st := w.roster.stripes.all[0]
	w.roster.stripes.hold(st, st.primary, grant{}) // its standby was lost
	w.roster.Disconnect(w.loaders["loader-0"], "loader-0")
	w.roster.Tick(time.Unix(1, 0).Add(Absence))
	w.roster.Tick(time.Unix(1, 0).Add(2 * Absence))
	w.settle()
	if got := w.reader().Name; got != "shadow-b" {
		t.Errorf("%s reads, want shadow-b", got)
	}
}

// TestANewLeaderKnowsTheReadersOfOtherHosts: the journal has the `up` of each reader, and the orchestrator of another
// host goes on with a reader that is there. A reader of an `up` that has ended is not waited for.
func TestANewLeaderKnowsTheReadersOfOtherHosts(t *testing.T) {
	for _, isThere := range []bool{true, false} {
		w := newWorld(t)
		w.journal.Manifests["web"] = &pb.Manifest{Source: "web"}
		w.holders[0] = &pb.Assigned{Source: "web", Member: "shadow-b", Up: "up of b", Term: 4}
		w.journal.Term = 4
		up := "up of b"
		if !isThere {
			up = "a later up of b"
		}
		for _, hello := range []*pb.LoaderHello{
			{Name: "shadow-b", Identity: "s", Host: "b", Up: up, Standby: true},
			{Name: "loader-0", Identity: "l", Host: "a", Up: "1"},
		} {
			if err := w.tryConnect(hello); err != nil {
				t.Fatal(err)
			}
		}
		known := false
		for _, o := range w.loaders["loader-0"].got {
			known = known || o.GetOpen().GetKnown()
		}
		want := map[bool]string{true: "shadow-b", false: "loader-0"}[isThere]
		if got := w.reader().Name; got != want || known != isThere {
			t.Errorf("there %t: %s reads, want %s; the source was read before: %t", isThere, got, want, known)
		}
		if a := w.holders[0]; a.Up != map[bool]string{true: "up of b", false: "1"}[isThere] {
			t.Errorf("there %t: the journal has %v", isThere, a)
		}
	}
}
