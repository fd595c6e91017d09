package sidecar_test

import (
	"testing"
	"time"

	"millrace"
	"millrace/sidecar"
	"millrace/sidecar/sidecartest"
)

// TestTheReserveIsFilled while the trainer holds all frames: to its limit of bytes, or to the limit of steps. A
// released frame moves it on by one step.
func TestTheReserveIsFilled(t *testing.T) {
	c := sidecartest.Config{World: 1, Microbatches: 1, Rows: 1, Length: 16}
	for _, x := range []struct {
		name        string
		steps       millrace.Step // whose tokens fit
		least, most int           // payloads in memory
	}{
		{"none", 0, 3, 3}, {"a few steps", 6, 4, 6}, {"all that may be ahead", 1000, 9, 9},
	} {
		t.Run(x.name, func(t *testing.T) {
			h := open(t, c, func(config *sidecar.Config) {
				config.Frames, config.Reserve = 3, bytesOfSteps(t, c, x.steps)
			})
			tr := dial(t, h.path(0))
			tr.hello("", nil)
			tr.want(begin)
			held := []msg{tr.want(batchMsg), tr.want(batchMsg), tr.want(batchMsg)}
			for range 3 {
				settled(t, h, x.least, x.most)
				tr.release(held[0])
				held = append(held[1:], tr.want(batchMsg))
			}
		})
	}
}

// bytesOfSteps returns the size of the tokens of the first steps.
func bytesOfSteps(t *testing.T, c sidecartest.Config, steps millrace.Step) (bytes int64) {
	run := sidecartest.New(c)
	for step := range steps {
		plan, err := run.Plan(t.Context(), 1, step)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := run.Fetch(t.Context(), plan.Plan, []millrace.Rank{0})
		if err != nil {
			t.Fatal(err)
		}
		bytes += payload.Bytes()
		payload.Release()
	}
	return bytes
}

// settled waits for the number of payloads to stay the same, and checks it.
func settled(t *testing.T, h *house, least, most int) {
	t.Helper()
	was, since := -1, time.Now()
	for deadline := time.Now().Add(time.Minute); time.Since(since) < 50*time.Millisecond || was < least; {
		if n := h.run.Payloads(); n != was {
			was, since = n, time.Now()
		}
		if time.Sleep(time.Millisecond); time.Now().After(deadline) {
			break
		}
	}
	if was < least || was > most {
		t.Errorf("%d payloads are in memory, want %d to %d", was, least, most)
	}
}
