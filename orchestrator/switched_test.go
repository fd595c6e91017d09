package orchestrator

import (
	"testing"

	"millrace/orchestrator/facts"
	"millrace/proto"
)

// TestAHostThatAsksALostStandby: the loader it gave up lives, and is given the stripe anew, under a term that the host takes.
func TestAHostThatAsksALostStandby(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.settle()
	st := c.m.stripe("web", 0)
	before, lost := st.primary, st.standby.term
	shadow := c.slots["shadow-0"]
	c.m.LoaderDown(shadow.box, "shadow-0")
	c.slots["shadow-0"] = nil
	c.turn()
	c.m.Switched(&proto.Switched{Source: "web", Stripe: 0, Term: lost, Step: c.m.s.Watermark, Reason: "it is silent"})
	c.turn()
	if now := st.primary; now.member != before.member || now.term <= lost || c.dir[facts.Stripe{Source: "web", Index: 0}].Term != now.term {
		t.Errorf("it was %s's under term %d, the host is ahead at %d; now it is %+v", before.member.name, before.term, lost, now)
	}
	now := st.primary
	for _, old := range []uint64{before.term, lost, c.m.s.AssignTerm + 7} {
		c.m.Switched(&proto.Switched{Source: "web", Stripe: 0, Term: old, Reason: "late"})
	}
	c.turn()
	if st.primary != now {
		t.Errorf("what is said of other terms changed it to %+v", st.primary)
	}
	c.settle()
}
