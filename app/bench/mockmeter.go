package bench

import (
	"runtime"
	"sync"
	"time"

	"millrace/sidecar"
)

// MockMeter counts the batches of a mock run, by the events of its sidecar. Its zero value has counted none.
type MockMeter struct {
	mu      sync.Mutex
	began   time.Time // the first batch was pushed
	newest  time.Time // a trainer gave a batch back
	batches uint64
	steps   []time.Time // commits of rank 0
}

// Observe counts an event.
func (m *MockMeter) Observe(e sidecar.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch e.Kind {
	case sidecar.Pushed:
		if m.began.IsZero() {
			m.began = now
		}
	case sidecar.Released:
		m.newest = now
		m.batches++
	case sidecar.Committed:
		if e.Slot.Rank == 0 {
			m.newest = now
			m.steps = append(m.steps, now)
		}
	}
}

// Figures returns the speed of the trainers.
func (m *MockMeter) Figures(mock *Mock, ranks int) *Figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &Figures{Ranks: ranks, Mock: true, Batches: m.batches, Steps: uint64(mock.Consumed()), CPUs: runtime.NumCPU(),
		Roles: []Role{}, Activities: []Activity{}}
	f.Tokens = f.Steps * mock.StepTokens()
	f.Seconds = max(m.newest.Sub(m.began).Seconds(), 1e-9)
	f.fill(m.steps)
	return f
}
