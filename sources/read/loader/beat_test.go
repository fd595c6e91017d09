package loader

import (
	"context"
	"testing"
	"time"

	"millrace/internal/heartbeat"
	"millrace/internal/seam"
)

// lateClock wakes its callers late.
type lateClock struct {
	seam.System
	by time.Duration
}

func (c lateClock) After(d time.Duration) <-chan time.Time { return c.System.After(d + c.by) }

// TestALoaderThatStarvesKnowsIt before anybody asks for its beats. One whose threads wait for no processor does not
// starve: its host was suspended, or the process was stopped.
func TestALoaderThatStarvesKnowsIt(t *testing.T) {
	const late = heartbeat.LongDelay + 50*time.Millisecond
	for _, waits := range []time.Duration{0, time.Second} {
		var waited time.Duration
		page := heartbeat.NewPage(new(heartbeat.Words), "", 1, heartbeat.Thread{Threads: func() heartbeat.Threads {
			waited += waits
			return heartbeat.Threads{Ran: waited / 10, Waited: waited}
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 2*(late+delayEvery))
		if err := timeDelays(ctx, page, lateClock{by: late}); err != nil {
			t.Fatal(err)
		}
		cancel()
		if got := page.Starved(time.Now()); (got >= late) != (waits > 0) {
			t.Errorf("timers are %v late and threads wait for %v: starved by %v", late, waits, got)
		}
	}
	var none *heartbeat.Page
	if got := none.Starved(time.Now()); got != 0 {
		t.Errorf("without a page: starved by %v", got)
	}
}
