package roster

import (
	"fmt"
	"testing"
	"time"
)

// TestStarvation: sidecars hear of delays beyond every limit, rounded up, and of the end some time after the last one.
func TestStarvation(t *testing.T) {
	var s Starvation
	now := time.Unix(1000, 0)
	if s.Order() != nil || s.Tick(now) {
		t.Error("without a delay there is news")
	}
	for _, c := range []struct {
		after   time.Duration
		up      string
		delay   time.Duration
		changed bool
		want    string // up=milliseconds
	}{
		{0, "b", leastDelay - time.Millisecond, false, ""},
		{0, "b", 300 * time.Millisecond, true, "b=512 "},
		{0, "b", 512 * time.Millisecond, false, "b=512 "},
		{0, "b", 513 * time.Millisecond, true, "b=1024 "},
		{0, "a", 128 * time.Millisecond, true, "a=128 b=1024 "},
		{starvedHold / 2, "b", 200 * time.Millisecond, false, "a=128 b=1024 "},
		{0, "b", 600 * time.Millisecond, false, "a=128 b=1024 "},
		{0, "a", 0, false, "a=128 b=1024 "},
		{starvedHold / 2, "", 0, true, "b=1024 "},
		{starvedHold / 2, "", 0, true, ""},
	} {
		now = now.Add(c.after)
		changed := s.Tick(now)
		if s.Observe(now, c.up, c.delay) {
			changed = true
		}
		got := ""
		for _, h := range s.Order().GetStarved().GetHosts() {
			got += fmt.Sprintf("%s=%d ", h.Up, h.DelayMs)
		}
		if got != c.want || changed != c.changed {
			t.Errorf("%v later, %s is late by %v: %q, changed %t; want %q, %t", c.after, c.up, c.delay, got, changed,
				c.want, c.changed)
		}
	}
	if s.Order() == nil {
		t.Error("sidecars do not hear that no host starves any more")
	}
}
