package roles

import (
	"sync"

	"millrace"
	"millrace/sidecar"
)

// trainers is the trainers of all streams that a sidecar serves. It reports their number to the supervisor.
type trainers struct {
	role    *role
	mu      sync.Mutex
	present map[trainer]bool // guarded by mu
}

type trainer struct {
	stream *stream
	rank   millrace.Rank
}

// note takes an event at a rank's socket.
func (t *trainers) note(s *stream, e sidecar.Event) {
	if e.Kind != sidecar.Joined && e.Kind != sidecar.Gone {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := (trainer{s, e.Slot.Rank}); e.Kind == sidecar.Joined {
		t.present[at] = true
	} else {
		delete(t.present, at)
	}
	if err := t.role.life.ReportTrainers(len(t.present)); err != nil {
		t.role.log.Warn("cannot report the number of trainers to the supervisor", "error", err)
	}
}
