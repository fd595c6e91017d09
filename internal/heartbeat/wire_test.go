package heartbeat

import (
	"os"
	"testing"
	"time"
)

// newWire returns a judge of a process of another host that has just beaten.
func newWire(slow int) *looks {
	c := new(Caution)
	l := &looks{j: NewWireJudge(time.Hour, c), c: c, now: time.Unix(1000, 0),
		r: Reading{Beats: 1, Period: Every, Slow: slow}}
	l.step(Look, 0, 0)
	return l
}

// TestSilenceOnTheWire: beats may be late for longer than on a page. A process that says that its host is busy may be
// late for longer still, up to a bound.
func TestSilenceOnTheWire(t *testing.T) {
	for slow, factor := range map[int]time.Duration{0: 1, 1: 1, 2: 2, 100: wireMostSlow} {
		l := newWire(slow)
		for range 100 {
			if v := l.step(Every, 1, 0); v != Alive {
				t.Fatalf("while it beats it is %v", v)
			}
		}
		v, after := l.until(t, Look)
		if want := factor * (Every + wireOverdue); v != Silent || after < want || after > want+want/5 {
			t.Errorf("slow %d: %v after %v, want silent after %v", slow, v, after, want)
		}
	}
	if limit := Every + wireOverdue; limit > 120*time.Millisecond {
		t.Errorf("the allowance of a process that does not wait is %v: too long for 150 ms", limit)
	}
}

// TestAStarvedWatcherHearsNoSilence: a watcher that had no processor time did not hear the beats that came.
func TestAStarvedWatcherHearsNoSilence(t *testing.T) {
	l := newWire(1)
	for range 10 {
		if v := l.step(time.Minute, 0, 0); v != Alive {
			t.Fatalf("after a pause of the watcher it is %v", v)
		}
	}
	if v := l.step(Look, 1, 0); v != Alive || l.j.late > wireOverdue {
		t.Errorf("it is %v, and counts as %v late", v, l.j.late)
	}
}

// TestBeatsThatReturnRaiseCaution: a silence alone does not, because a host that is gone confirms nothing.
func TestBeatsThatReturnRaiseCaution(t *testing.T) {
	l := newWire(1)
	_, first := l.until(t, Look)
	if l.c.factor(l.now) != 1 {
		t.Errorf("a silence without a beat after it has factor %d", l.c.factor(l.now))
	}
	l.j.Returned(l.now)
	l.j.Rest()
	l.step(Look, 1, 0)
	if l.c.factor(l.now) != 2 {
		t.Errorf("after a beat the factor is %d", l.c.factor(l.now))
	}
	var second time.Duration
	for l.since = 0; l.step(Look, 0, 0) == Alive; {
		second = l.since
	}
	if second < first+wireOverdue/2 {
		t.Errorf("the next silence counts after %v, the first after %v", second, first)
	}
	l = newWire(1)
	l.j.deadline = time.Second
	l.r.Pending = 1
	for i := 0; i < 200 && l.step(Every, 1, 0) == Alive; i++ {
		continue
	}
	if l.j.said != Stuck || l.c.factor(l.now) != 2 {
		t.Errorf("without progress it is %v, factor %d; want stuck and 2", l.j.said, l.c.factor(l.now))
	}
}

// TestAWireHasTheNewestBeat: every message is a sign of life. Before the first beat of a stream, a connection may have
// to be made.
func TestAWireHasTheNewestBeat(t *testing.T) {
	var w Wire
	if r := w.Sample(); r.Period != opening || r.Beats != 0 {
		t.Errorf("before the first beat: %+v", r)
	}
	w.Hear(Beat{Progress: 7, Pending: 2, Slow: 3})
	if r, want := w.Sample(), (Reading{Beats: 1, Period: Every, Progress: 7, Pending: 2, Slow: 3}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	w.Live()
	if r := w.Sample(); r.Beats != 2 || r.Progress != 7 {
		t.Errorf("after another message: %+v", r)
	}
	w.Off()
	if r := w.Sample(); r.Period != opening {
		t.Errorf("after the end of the stream: %+v", r)
	}
	var none *Wire
	none.Live()
}

// TestAPageTellsItsState: its counters, and how slow the host makes the process.
func TestAPageTellsItsState(t *testing.T) {
	p, err := Files{}.Create(Path(t.TempDir(), "loader-0", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Begin()
	p.Begin()
	p.End()
	p.Progress()
	if b := p.Beat(time.Now()); b.Pending != 1 || b.Progress != 1 || b.Slow < 1 {
		t.Errorf("it tells %+v", b)
	}
}

// TestTheShareOfAProcess is asked for at most every tenth of a second. It rises at once and falls slowly.
func TestTheShareOfAProcess(t *testing.T) {
	var s share
	var is Threads
	asked, now := 0, time.Unix(1000, 0)
	threads := func() Threads { asked++; return is }
	for i, c := range []struct {
		ran, waited time.Duration
		want        int
	}{
		{10 * time.Millisecond, 10 * time.Millisecond, 2}, // since the start of the process
		{10 * time.Millisecond, 0, 1},
		{10 * time.Millisecond, 30 * time.Millisecond, 4},
		{10 * time.Millisecond, 0, 3},
		{0, shareNoise, 2}, // too short to count
		{0, 50 * time.Millisecond, mostSlow},
	} {
		is.Ran, is.Waited, now = is.Ran+c.ran, is.Waited+c.waited, now.Add(shareEvery)
		if got := s.slow(now, threads); got != c.want {
			t.Errorf("answer %d: slow %d, want %d", i, got, c.want)
		}
		if got := s.slow(now.Add(shareEvery/2), threads); got != c.want || asked != i+1 {
			t.Errorf("answer %d: slow %d after half the time, %d questions", i, got, asked)
		}
	}
	if got := (&share{}).slow(now, nil); got != 1 {
		t.Errorf("a kernel that cannot be asked: slow %d", got)
	}
}
