package heartbeat_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/heartbeat"
	"millrace/internal/heartbeat/heartbeattest"
	"millrace/internal/seam"
)

// TestBeatsSlowDown: a process without requests promises slower beats, and keeps its promise.
func TestBeatsSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := heartbeattest.NewMemory(seam.System{})
		p, err := pages.Create("page")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }() // waited for below
		m, err := pages.Open("page")
		if err != nil {
			t.Fatal(err)
		}
		beats := func(d time.Duration) uint64 {
			was := m.Sample().Beats
			time.Sleep(d)
			return m.Sample().Beats - was
		}
		p.Begin()
		time.Sleep(3 * time.Second)
		if n, r := beats(time.Second), m.Sample(); n < 490 || r.Period != heartbeat.Active || r.Pending != 1 {
			t.Errorf("with a request pending: %d beats a second, %+v", n, r)
		}
		p.End()
		time.Sleep(3 * time.Second)
		if n, r := beats(time.Second), m.Sample(); n > 55 || n < 45 || r.Period != heartbeat.Idle || r.Pending != 0 {
			t.Errorf("idle: %d beats a second, %+v", n, r)
		}
		j := heartbeat.NewJudge(time.Second, new(heartbeat.Caution))
		if v, _ := heartbeat.Watch(m, j, 5*time.Second); v != heartbeat.Alive {
			t.Errorf("idle it is %v", v)
		}
		p.Progress() // a standby decodes now and then, and nobody watches it
		time.Sleep(heartbeat.Idle)
		if r := m.Sample(); r.Period != heartbeat.Idle || r.Progress != 1 {
			t.Errorf("after progress without a request: %+v", r)
		}
		p.Begin()
		p.End()
		time.Sleep(heartbeat.Idle)
		if r := m.Sample(); r.Period != heartbeat.Active || r.Pending != 0 {
			t.Errorf("after a request: %+v", r)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if v, d := heartbeat.Watch(m, j, time.Minute); v != heartbeat.Silent ||
			d > heartbeat.Idle+heartbeat.Overdue+heartbeat.Look {
			t.Errorf("after its end it is %v, seen after %v", v, d)
		}
		if err := errors.Join(p.Close(), m.Close()); err != nil {
			t.Error(err)
		}
		if _, err := pages.Open("page"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a page that was closed: %v", err)
		}
	})
}
