package orchestrator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace"
	"millrace/internal/wire"
	"millrace/orchestrator/roster"
	"millrace/proto"
)

// kinds returns the alerts that the sidecar heard of last. Status must show the same.
func (c *cluster) kinds() string {
	c.t.Helper()
	list := func(alerts []*proto.Alert) (out string) {
		for _, a := range alerts {
			out += fmt.Sprintf("%s@%d ", a.Kind, a.Since)
		}
		return strings.TrimSpace(out)
	}
	var heard []*proto.Alert
	for _, msg := range c.sidecar.got {
		if a := msg.(*proto.SidecarOrder).GetAlerts(); a != nil {
			heard = a.Alerts
		}
	}
	if shown := list(c.m.Status().Alerts); shown != list(heard) {
		c.t.Fatalf("status says %q, the sidecar heard %q", shown, list(heard))
	}
	return list(heard)
}

// TestMissingCapacityIsAnAlert checks when each alert begins and ends.
func TestMissingCapacityIsAnAlert(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.settle()
	if got := c.kinds(); got != "" || c.m.Status().Protected == 0 {
		t.Fatalf("a sound run has the alerts %q, protected since %d", got, c.m.Status().Protected)
	}
	shadow := c.slots["shadow-0"]
	c.m.roster.Disconnect(shadow.box, "shadow-0")
	c.slots["shadow-0"] = nil
	c.turn()
	lost := c.now
	c.wait(roster.Absence / 2)
	if got := c.kinds(); got != "" {
		t.Errorf("at once there are the alerts %q", got)
	}
	c.wait(roster.Absence)
	if got, want := c.kinds(), fmt.Sprintf("unprotected@%d", lost.UnixMilli()); got != want ||
		c.m.Status().Protected != 0 ||
		c.m.Status().Sources["web"].Unprotected != 2 {
		t.Errorf("without a shadow the alerts are %q, want %q", got, want)
	}
	c.settle()
	if got := c.kinds(); got != "" {
		t.Errorf("with a new shadow the alerts are %q", got)
	}
	at := c.now.UnixMilli()
	c.m.Disk(1<<30, 1<<40)
	l := c.slots["loader-1"]
	c.m.roster.Trouble(l.box, "loader-1", &proto.Trouble{Source: "web", Text: "connection refused"})
	c.turn()
	if got, want := c.kinds(), fmt.Sprintf("disk@%d source@%d", at, at); got != want {
		t.Errorf("the alerts are %q, want %q", got, want)
	}
	c.m.Disk(1<<40, 1<<40)
	c.m.roster.Trouble(l.box, "loader-1", &proto.Trouble{Source: "web"})
	c.m.roster.Disconnect(l.box, "loader-1")
	c.slots["loader-1"] = nil
	c.turn()
	at = c.now.UnixMilli()
	c.wait(roster.Absence)
	if got := c.kinds(); got != fmt.Sprintf("role@%d unprotected@%d", at, at) || c.m.Status().Switches != 1 {
		t.Errorf("without loader-1 the alerts are %q; %d switches", got, c.m.Status().Switches)
	}
	late := &box{}
	err := c.m.SidecarUp(late, &proto.SidecarHello{Version: testVersion(), Name: "sidecar-1"})
	c.turn()
	if err != nil || !has(late.take(), "Alerts") {
		t.Errorf("a late sidecar was not told: %v", err)
	}
}

func TestALoaderMayTakeLongToStart(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.wait(opening / 2)
	if got := c.kinds(); got != "" {
		t.Errorf("while loaders start there are the alerts %q", got)
	}
	c.wait(opening)
	got := c.m.Status().Alerts
	if len(got) != 1 || !strings.Contains(got[0].Text, "2 of 2 loaders have not joined the run yet") {
		t.Errorf("after twice the time there are the alerts %v", got)
	}
}

func TestALoaderThatIsAskedToLeaveHandsOverFirst(t *testing.T) {
	c := newCluster(t, 1, "loader-0", "loader-1", "shadow-0")
	c.settle()
	p := c.slots["loader-0"]
	old := reader(c.m, "code", 0).Standby
	c.m.roster.Leaving(p.box, "loader-0", &proto.Leaving{})
	c.turn()
	if now := reader(c.m, "code", 0); now.Name != "shadow-0" || now.Term != old.Term ||
		!has(p.box.take(), "bye: it was asked") {
		t.Errorf("it left to %v", now)
	}
	p.open = false
	c.slots["loader-0"], c.now = nil, c.now.Add(10*time.Millisecond)
	c.settle()
	roles := map[string]string{}
	for _, r := range c.m.Status().Roles {
		roles[r.Name] = r.Role
	}
	if roles["loader-0"] != "shadow" || roles["shadow-0"] != "loader" || roles["loader-1"] != "loader" ||
		c.m.roster.Unprotected(roster.AllSources) != 0 {
		t.Errorf("roles %v, %d unprotected", roles, c.m.roster.Unprotected(roster.AllSources))
	}
	alone := newCluster(t, 1, "loader-0", "loader-1")
	alone.settle()
	p = alone.slots["loader-0"]
	alone.m.roster.Leaving(p.box, "loader-0", &proto.Leaving{})
	alone.turn()
	if isConnected(alone.m, "loader-0") || !has(p.box.take(), "bye: ") {
		t.Error("no loader can take over, and it may not leave")
	}
}

// TestProgramsOfAnotherReleaseAreRefused checks that the error names the program.
func TestProgramsOfAnotherReleaseAreRefused(t *testing.T) {
	w := newWorld(t, 1)
	for _, v := range []*proto.Version{nil, {Protocol: wire.ProtocolVersion + 1, Planner: 1, Program: "millrace 9.9"},
		{Protocol: wire.ProtocolVersion, Planner: 99, Program: "millrace 9.9"}} {
		for _, err := range []error{w.m.roster.Connect(&box{}, &proto.LoaderHello{Name: "loader-0", Version: v}),
			w.m.SidecarUp(&box{}, &proto.SidecarHello{Name: "sidecar-0", Version: v})} {
			if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), "the orchestrator is test") ||
				v != nil && !strings.Contains(err.Error(), "millrace 9.9") {
				t.Errorf("%v: %v", v, err)
			}
		}
	}
	if len(w.m.Status().Roles) > 1 { // the orchestrator
		t.Error("one was taken in")
	}
}
