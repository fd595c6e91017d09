package orchestrator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "millrace/proto"
)

// TestAlertsAreToldTwice: one line when a condition begins, none while its number grows, and one when it ends.
func TestAlertsAreToldTwice(t *testing.T) {
	w := newWorld(t, 1)
	lines := func() (out []string) {
		w.lines = nil
		w.turn()
		for _, line := range w.lines {
			if strings.HasPrefix(line, "warning: ") || strings.HasPrefix(line, "over: ") {
				out = append(out, line)
			}
		}
		return out
	}
	now := time.Unix(1000, 0)
	w.m.Tick(now)
	before := lines() // the alerts of a world without loaders
	w.m.Disk(10<<30, 1<<40)
	first := lines()
	if len(first) != 1 || !strings.HasPrefix(first[0], "warning: the journal's disk has less than ") {
		t.Fatalf("%q, before that %q", first, before)
	}
	w.m.Tick(now.Add(time.Millisecond))
	w.m.Disk(9<<30, 1<<40)
	if again := lines(); len(again) > 0 {
		t.Errorf("told again: %q", again)
	}
	if kinds := w.m.Status().Alerts; !slices.ContainsFunc(kinds,
		func(a *pb.Alert) bool { return a.Kind == "disk" && a.Since == now.UnixMilli() }) {
		t.Errorf("status says %v", kinds)
	}
	w.m.Disk(1<<39, 1<<40)
	if over := lines(); len(over) != 1 || over[0] != "over: "+strings.TrimPrefix(first[0], "warning: ") {
		t.Errorf("%q", over)
	}
}

// TestOneCopyAloneIsAnAlert: people are told if the journal has had no other copy for a moment, and when it has one.
func TestOneCopyAloneIsAnAlert(t *testing.T) {
	w := newWorld(t, 1)
	at := time.Unix(1000, 0)
	told := func(after time.Duration, isAlone bool) (out []string) {
		at, w.lines = at.Add(after), nil
		w.m.alerts.copies = copies{host: "host-0", isAlone: isAlone}
		w.m.Tick(at)
		w.turn()
		for _, line := range w.lines {
			if strings.Contains(line, "journal: ") {
				out = append(out, line)
			}
		}
		return out
	}
	if lines := slices.Concat(told(0, true), told(time.Second, false), told(time.Second, true)); len(lines) > 0 {
		t.Errorf("told at once: %q", lines)
	}
	begins, ends := told(3*time.Second, true), told(time.Second, false)
	if len(begins) != 1 || !strings.HasPrefix(begins[0], "warning: journal: one copy alone, on host-0: ") ||
		len(ends) != 1 || ends[0] != "over: "+strings.TrimPrefix(begins[0], "warning: ") {
		t.Errorf("told %q, then %q", begins, ends)
	}
}

// TestALoaderThatIsAwayIsRestartedByItsOwnHost: the alert promises a restart only for a loader of the orchestrator's
// `up`. Nobody waits for a loader that left for good.
func TestALoaderThatIsAwayIsRestartedByItsOwnHost(t *testing.T) {
	w := &world{t: t, cfg: newConfig(t, 1), reject: func(string, uint64) string { return "" }}
	w.cfg.Host, w.cfg.Up, w.cfg.Loaders = "host-a", "up-a", 4
	w.restart()
	boxes := map[string]*box{}
	for i, host := range []string{"a", "b", "c"} {
		name := fmt.Sprint("loader-", i)
		boxes[name] = &box{}
		hello := &pb.LoaderHello{Version: testVersion(), Name: name, Identity: name, Host: "host-" + host,
			Up: "up-" + host}
		if err := w.m.roster.Connect(boxes[name], hello); err != nil {
			t.Fatal(err)
		}
		w.turn()
	}
	w.m.roster.Leaving(boxes["loader-2"], "loader-2", &pb.Leaving{ForGood: true})
	for name, box := range boxes {
		w.m.roster.Disconnect(box, name)
	}
	var got []string
	for _, c := range w.m.absent() {
		got = append(got, c.text)
	}
	want := []string{
		"loader-0 is not there; it is being restarted",
		"loader-1 of host-b is not there; another loader may read in its place",
		"1 of 4 loaders has not joined the run yet: a loader opens its tokenizer first, or its host is not there",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
