package roster

import (
	"fmt"
	"testing"

	pb "millrace/proto"
)

// peer is a Session of a sidecar that remembers its newest groups.
type peer struct {
	groups map[uint32]*pb.Group
	told   int
}

func (h *peer) Send(msg any) {
	if o := msg.(*pb.SidecarOrder); o.GetGroups() != nil {
		h.told++
		h.groups = map[uint32]*pb.Group{}
		for _, g := range o.GetGroups().Group {
			h.groups[g.Rank] = g
		}
	}
}

func (h *peer) constructor(rank uint32) string {
	return fmt.Sprint(h.groups[rank].GetName(), " ", h.groups[rank].GetHosts())
}

// TestTheConstructorsFollowTheSidecars that are there: a rank that one host needs has no group. All members are told
// the same, and others nothing.
func TestTheConstructorsFollowTheSidecars(t *testing.T) {
	out := &Actions{}
	s := NewSidecars(out, func() *pb.Fence { return &pb.Fence{} })
	hosts := map[string]*peer{}
	connect := func(name, identity string, feeds ...uint32) {
		hosts[name] = &peer{}
		s.Connect(hosts[name], &pb.SidecarHello{Name: name, Identity: identity, Remote: name + ":" + identity,
			Feeds: feeds})
		deliver(out)
	}
	is := func(rank uint32, want string, members ...string) {
		t.Helper()
		for _, m := range members {
			if got := hosts[m].constructor(rank); got != want {
				t.Errorf("%s has %q as the constructor of rank %d, want %q", m, got, rank, want)
			}
		}
	}
	connect("a", "1", 0, 1)
	connect("lone", "1", 7)
	connect("old", "1")
	if hosts["a"].told != 1 || hosts["lone"].told != 1 || hosts["old"].told != 0 {
		t.Errorf("sidecars without a group were told %d, %d and %d times", hosts["a"].told, hosts["lone"].told,
			hosts["old"].told)
	}
	connect("c", "1", 0, 1)
	is(0, "a 2", "a", "c")
	is(1, "c 2", "a", "c")
	connect("b", "1", 1, 2)
	is(0, "a 2", "a", "c")
	is(1, "b 3", "a", "b", "c")
	is(2, " 0", "b")
	if hosts["lone"].told != 1 {
		t.Error("a sidecar was told of the groups of others")
	}
	before := hosts["a"].told
	connect("b", "2", 1, 2)
	if g := hosts["a"].groups[1]; g.Remote != "b:2" || hosts["a"].told != before+1 {
		t.Errorf("after a restart, the constructor is at %s; it was told in %d messages", g.Remote,
			hosts["a"].told-before)
	}
	s.Disconnect(hosts["b"], "b")
	deliver(out)
	is(1, "c 2", "a", "c")
	s.Disconnect(hosts["c"], "c")
	deliver(out)
	is(1, " 0", "a")
	is(0, " 0", "a")
}

func deliver(out *Actions) {
	for _, a := range out.Take() {
		if a.To != nil {
			a.To.Send(a.Msg)
		}
	}
}
