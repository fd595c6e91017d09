package loader

import (
	"testing"
	"time"
)

// TestWarmingIsBounded: all standbys of a process together use a small share of its time, and none waits for ever.
func TestWarmingIsBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	var w warmth
	if pause := w.spend(now, 0); pause != warmEvery {
		t.Errorf("a standby without work pauses for %v", pause)
	}
	var work, waited time.Duration // one standby that works 100 ms each time
	for range 100 {
		const took = 100 * time.Millisecond
		now = now.Add(took)
		pause := w.spend(now, took)
		now, work, waited = now.Add(pause), work+took, waited+pause
	}
	if total := work + waited; work*warmShare != total {
		t.Errorf("%v of %v were work, want one part in %d", work, total, warmShare)
	}
	var last time.Duration // eight standbys that work 10 ms at the same time
	for range 8 {
		last = w.spend(now, 10*time.Millisecond)
	}
	if want := 8 * 10 * (warmShare - 1) * time.Millisecond; last != want {
		t.Errorf("the last of eight pauses for %v, want %v", last, want)
	}
	if pause := w.spend(now, time.Hour); pause != warmPause {
		t.Errorf("after an hour of work the pause is %v", pause)
	}
}
