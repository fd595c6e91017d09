package gauge

import (
	"testing"
	"time"

	"millrace/internal/activity"
)

// TestWaitsCountFromTheFirstCommit: the wait for a run to begin is no wait for data.
func TestWaitsCountFromTheFirstCommit(t *testing.T) {
	now := time.Unix(1000, 0)
	r := &Ranks{Now: func() time.Time { return now }}
	cause := activity.Cause{Kind: activity.Read, Source: "web", Role: "loader-0"}
	r.Waits(0, 9*time.Second, 9*time.Second, cause)
	if f := r.Figures()[0]; f.Waited != 0 || f.Waits != 0 || f.Waiting.GetKind() != "read" {
		t.Errorf("before the first commit: %v", f)
	}
	r.Delivered(0)
	r.Committed(0, 1, 9*time.Second)
	r.Ready(0, 4)
	for _, current := range []time.Duration{500, 1000, 1500} {
		r.Waits(0, (9000+current)*time.Millisecond, current*time.Millisecond, cause)
	}
	now = now.Add(2 * time.Second)
	f := r.Figures()[0]
	if f.Waited != 1.5 || f.Waits != 1 || f.Longest != 1.5 || f.WaitingFor != 3.5 || f.Buffered != 3 ||
		f.Connected != 2 {
		t.Errorf("during a wait: %v", f)
	}
	r.Delivered(0)
	if f := r.Figures()[0]; f.Waiting != nil || f.WaitingFor != 0 {
		t.Errorf("after a batch: %v", f)
	}
	r.Waits(0, 12*time.Second, 1200*time.Millisecond, cause)
	if f := r.Figures()[0]; f.Waits != 2 || f.Waited != 3 {
		t.Errorf("in the second long wait: %v", f)
	}
	r.Committed(0, 1, time.Second) // another trainer begins at 0
	if f := r.Figures()[0]; f.Waited != 0 {
		t.Errorf("of another trainer: %v", f)
	}
}
