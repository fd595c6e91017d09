package orchestrator

import (
	"testing"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestAHostThatAsksALostStandbyGetsAReader: the primary that the host gave up lives. It is given the stripe again,
// under a term that the host takes.
func TestAHostThatAsksALostStandbyGetsAReader(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.settle()
	before := reader(c.m, "web", 0)
	lost := before.Standby.Term
	shadow := c.slots["shadow-0"]
	c.m.roster.Disconnect(shadow.box, "shadow-0")
	c.slots["shadow-0"] = nil
	c.turn()
	c.m.roster.Switched(
		&proto.Switched{Source: "web", Stripe: 0, Term: lost, Step: c.m.s.Watermark, Reason: "it is silent"},
		c.m.s.AssignTerm)
	c.turn()
	now := reader(c.m, "web", 0)
	if now.Address != before.Address || now.Term <= lost ||
		c.dir[facts.Stripe{Source: "web", Index: 0}].Term != now.Term {
		t.Errorf("it was %s's under term %d, the host is ahead at %d; now it is %+v", before.Name, before.Term, lost,
			now)
	}
	for _, old := range []uint64{before.Term, lost, c.m.s.AssignTerm + 7} {
		c.m.roster.Switched(&proto.Switched{Source: "web", Stripe: 0, Term: old, Reason: "late"}, c.m.s.AssignTerm)
	}
	c.turn()
	if after := reader(c.m, "web", 0); after.Name != now.Name || after.Term != now.Term {
		t.Errorf("reports of other terms changed it to %+v", after)
	}
	c.settle()
}
