package orchestrator

import (
	"testing"
	"time"

	"millrace/proto"
)

// consumeFor lets all ranks consume so many steps a second.
func (w *world) consumeFor(seconds, steps int) {
	w.t.Helper()
	for second := range seconds {
		w.m.Tick(time.Unix(int64(second), 0))
		w.turn()
		for range steps {
			w.consume(w.m.s.Watermark + 1)
		}
	}
}

// TestTheRunwayFollowsThePace: as many steps are planned ahead as the ranks consume in the time of the runway, within
// its bounds, and the least number before the pace is known.
func TestTheRunwayFollowsThePace(t *testing.T) {
	for name, c := range map[string]struct {
		ahead Ahead
		steps int // a second
		want  uint64
	}{
		"the pace":               {Ahead{Time: 10 * time.Second, Steps: 1000, Bytes: 1 << 30}, 2, 20},
		"a faster pace":          {Ahead{Time: 10 * time.Second, Steps: 1000, Bytes: 1 << 30}, 5, 50},
		"the most steps":         {Ahead{Time: 10 * time.Second, Steps: 12, Bytes: 1 << 30}, 5, 12},
		"no room for more plans": {Ahead{Time: 10 * time.Second, Steps: 1000, Bytes: 1}, 5, 3},
		"no time":                {Ahead{}, 5, 3},
		"a slow pace":            {Ahead{Time: time.Second, Steps: 1000, Bytes: 1 << 30}, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.cfg.Ahead = c.ahead
			w.restart()
			w.connect()
			w.joinAll("fresh", nil)
			if got := w.m.s.Next; got != uint64(w.cfg.Runway) {
				t.Fatalf("%d steps are planned before the first is consumed, want %d", got, w.cfg.Runway)
			}
			w.consumeFor(20, c.steps)
			if got := w.m.s.Next - w.m.s.Watermark; got != c.want {
				t.Errorf("%d steps are planned ahead, want %d", got, c.want)
			}
			w.joinAll("fresh", nil)
			if got := w.m.s.Next - w.m.s.Watermark; got != uint64(w.cfg.Runway) {
				t.Errorf("%d steps of a new attempt are planned, want %d", got, w.cfg.Runway)
			}
		})
	}
}

// TestTheNextOrchestratorKeepsTheRunway: it does not wait until the ranks have used the steps that its predecessor had
// planned, but plans further ones as soon as it knows the pace. Else the loss of a second leader would find few. Steps
// that the ranks consumed while nobody led say nothing about the pace.
func TestTheNextOrchestratorKeepsTheRunway(t *testing.T) {
	const steps, seconds = 5, 10 // a second, of the runway
	w := newWorld(t, 2)
	w.cfg.Ahead = Ahead{Time: seconds * time.Second, Steps: 1000, Bytes: 1 << 30}
	w.restart()
	w.connect()
	w.joinAll("fresh", nil)
	w.consumeFor(20, steps)
	below := w.m.s.Watermark + 3*steps
	w.restart()
	w.m.Tick(time.Unix(-1, 0))
	w.connect()
	w.reconnect(&proto.RankPosition{Rank: 0, Serving: true, Attempt: 1, Below: below},
		&proto.RankPosition{Rank: 1, Serving: true, Attempt: 1, Below: below})
	w.consumeFor(int(leastPaceTime/time.Second)+2, steps)
	if got := w.m.s.Next - w.m.s.Watermark; got != steps*seconds {
		t.Errorf("%d steps are planned ahead when the pace is known, want %d", got, steps*seconds)
	}
}

// TestOtherRanksUseTheRunway of a rank that went away before the pace was known: as many seconds as the runway has,
// under the next orchestrator, too.
func TestOtherRanksUseTheRunway(t *testing.T) {
	for name, c := range map[string]struct {
		ahead Ahead
		want  uint64 // steps of rank 1 in 20 seconds, at most 4 a second
	}{
		"the time":               {Ahead{Time: 10 * time.Second, Steps: 1000, Bytes: 1 << 30}, 40},
		"the most steps":         {Ahead{Time: 10 * time.Second, Steps: 12, Bytes: 1 << 30}, 12},
		"no room for more plans": {Ahead{Time: 10 * time.Second, Steps: 1000, Bytes: 1}, 3},
	} {
		for _, isNew := range []bool{false, true} {
			w := newWorld(t, 2)
			w.cfg.Ahead = c.ahead
			w.restart()
			w.connect()
			w.joinAll("fresh", nil)
			w.consume(1)
			if isNew {
				w.restart()
				w.connect()
				w.reconnect(&proto.RankPosition{Rank: 1, Serving: true, Attempt: 1, Below: 1})
			}
			below := uint64(1)
			for quarter := range 80 {
				w.m.Tick(time.Unix(1000, int64(quarter)*int64(250*time.Millisecond)))
				w.turn()
				if below < w.m.s.Next {
					below++
					w.m.Committed(w.sidecar, &proto.Commit{Attempt: 1, Rank: 1, Step: below - 1})
					w.turn()
				}
			}
			if got := below - 1; got < c.want-1 || got > c.want+uint64(w.cfg.Runway) {
				t.Errorf("%s, new %t: rank 1 went on for %d steps, want %d", name, isNew, got, c.want)
			}
			if w.m.s.Watermark != 1 {
				t.Errorf("%s, new %t: the watermark is %d", name, isNew, w.m.s.Watermark)
			}
		}
	}
}

// TestALongRunwayKeepsTheWorkOfConsumedSteps: times that trainers report are compared with it.
func TestALongRunwayKeepsTheWorkOfConsumedSteps(t *testing.T) {
	w := newWorld(t, 2)
	w.cfg.Ahead, w.cfg.Refit = Ahead{Time: 10 * time.Second, Steps: 1000, Bytes: 1 << 30}, 1000
	w.restart()
	w.connect()
	w.joinAll("fresh", nil)
	w.consumeFor(20, 5)
	loads, below := w.m.reports.loads, w.m.s.Watermark
	if ahead := w.m.s.Next - below; ahead <= loadsKept {
		t.Fatalf("%d steps are planned ahead", ahead)
	}
	for step := below - loadsKept; step < w.m.s.Next; step++ {
		if _, known := loads[step]; !known {
			t.Errorf("the work of step %d is forgotten, the watermark is %d", step, below)
		}
	}
	if most := int(w.m.s.Next-below) + 2*loadsKept; len(loads) > most {
		t.Errorf("the work of %d steps is kept, want at most %d", len(loads), most)
	}
}
