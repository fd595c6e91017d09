package roster

import (
	"fmt"
	"testing"
	"time"
)

// loaderSession is the session of a loader to which nobody sends.
type loaderSession byte

func (*loaderSession) Send(any) {}

// TestStarvation: after a wrong verdict, sidecars hear of long delays, rounded up, and of the end some time after the
// last one.
func TestStarvation(t *testing.T) {
	var s Starvation
	now, l := time.Unix(1000, 0), new(loaderSession)
	wrong := func(after time.Duration) func() bool {
		return func() bool {
			s.Accuse(now, l)
			now = now.Add(after)
			return s.Left(now, l)
		}
	}
	late := func(up string, ms time.Duration) func() bool {
		return func() bool { return s.Observe(now, up, ms*time.Millisecond) }
	}
	pass := func(d time.Duration) func() bool {
		return func() bool { now = now.Add(d); return s.Tick(now) }
	}
	for i, c := range []struct {
		what    func() bool
		changed bool
		want    string // up=milliseconds
	}{
		{wrong(0), false, ""}, // no host starves: the network was away
		{late("b", 900), false, ""},
		{func() bool { return s.Left(now, l) }, false, ""}, // nobody had given it up
		{wrong(wrongWithin + time.Millisecond), false, ""}, // its host was lost
		{wrong(wrongWithin), true, "b=1000 "},
		{wrong(0), false, "b=1000 "},
		{late("b", 1000), false, "b=1000 "},
		{late("b", 1001), true, "b=1250 "},
		{late("a", 249), false, "b=1250 "},
		{late("a", 250), true, "a=250 b=1250 "},
		{pass(starvedHold / 2), false, "a=250 b=1250 "},
		{late("b", 300), false, "a=250 b=1250 "},
		{late("b", 1100), false, "a=250 b=1250 "},
		{late("a", 0), false, "a=250 b=1250 "},
		{pass(starvedHold / 2), true, "b=1250 "},
		{pass(starvedHold / 2), true, ""},
		{pass(wrongHold), false, ""},
		{late("b", 900), false, ""},
		{wrong(0), true, "b=1000 "},
		{func() bool { s.wrong = now.Add(-wrongHold + time.Second); return pass(time.Second)() }, true, ""},
		{late("b", 2000), false, ""},
	} {
		changed, got := c.what(), ""
		for _, h := range s.Order().GetStarved().Hosts {
			got += fmt.Sprintf("%s=%d ", h.Up, h.DelayMs)
		}
		if got != c.want || changed != c.changed {
			t.Errorf("event %d: %q, changed %t; want %q, %t", i, got, changed, c.want, c.changed)
		}
	}
	if len(s.accused) != 0 {
		t.Errorf("%d loaders are remembered", len(s.accused))
	}
}
