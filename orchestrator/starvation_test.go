package orchestrator

import (
	"fmt"
	"testing"
	"time"

	pb "millrace/proto"
)

// TestSidecarsHearWhichHostsStarve: those that are connected, and those that come. Later they hear that it is over.
func TestSidecarsHearWhichHostsStarve(t *testing.T) {
	w := newWorld(t, 1)
	loader, early, later := &box{}, &box{}, &box{}
	come := func(name string, to *box) {
		hello := &pb.SidecarHello{Version: testVersion(), Name: name, Identity: name}
		if err := w.m.SidecarUp(to, hello); err != nil {
			t.Fatal(err)
		}
		w.turn()
	}
	come("sidecar-8", early)
	hello := &pb.LoaderHello{Version: testVersion(), Name: "loader-9", Identity: "loader-9", Up: "up-9"}
	if err := w.m.roster.Connect(loader, hello); err != nil {
		t.Fatal(err)
	}
	starved := func(ms uint32) {
		w.m.LoaderEvent(loader, "loader-9", &pb.LoaderEvent{
			Event: &pb.LoaderEvent_Figures{Figures: &pb.Figures{Role: "loader-9", StarvedMs: ms}},
		})
		w.turn()
	}
	heard := func(from *box) (out string) {
		for _, msg := range from.got {
			if s := msg.(*pb.SidecarOrder).GetStarved(); s != nil {
				out = fmt.Sprint(len(s.Hosts))
				for _, h := range s.Hosts {
					out += fmt.Sprintf(" %s %d", h.Up, h.DelayMs)
				}
			}
		}
		return out
	}
	w.m.Tick(time.Unix(1000, 0))
	starved(700)
	if got := heard(early); got != "" {
		t.Errorf("before a wrong verdict: %q", got)
	}
	w.m.starvation.Accuse(w.m.alerts.clock, loader)
	w.m.loaderDown(loader, "loader-9")
	w.turn()
	come("sidecar-9", later)
	for _, from := range []*box{early, later} {
		if got := heard(from); got != "1 up-9 750" {
			t.Errorf("after a wrong verdict: %q", got)
		}
	}
	w.m.Tick(w.m.alerts.clock.Add(time.Hour))
	w.turn()
	for _, from := range []*box{early, later} {
		if got := heard(from); got != "0" {
			t.Errorf("an hour later: %q", got)
		}
	}
}
