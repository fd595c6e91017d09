package heartbeat

import (
	"math/rand/v2"
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

// TestSilenceOnTheWire: beats may be late for longer than on a page. A process whose host is busy may be late for even
// longer, up to a bound.
func TestSilenceOnTheWire(t *testing.T) {
	for _, c := range []struct {
		slow    int
		stalled time.Duration
		factor  time.Duration
	}{
		{0, 0, 1}, {1, 0, 1}, {2, wireOverdue, 2}, {100, wireOverdue, wireMostSlow}, {100, time.Hour, wireMostSlow},
		{1, time.Second, 1}, // it was stopped
		{100, 0, wireSlow},  // its threads wait often, but never for long
		{100, 2*wireStalled - 1, wireSlow},
		{100, 2 * wireStalled, wireMostSlow},
	} {
		l := newWire(c.slow)
		l.r.Stalled = c.stalled
		slow, factor := c.slow, c.factor
		for range 100 {
			if v := l.step(Every, 1, 0); v != Alive {
				t.Fatalf("while it beats it is %v", v)
			}
		}
		v, after := l.until(t, Look)
		if want := factor * (Every + wireOverdue); v != Silent || after < want || after > want+want/5 {
			t.Errorf("slow %d, stalled %v: %v after %v, want silent after %v", slow, c.stalled, v, after, want)
		}
	}
	if limit := Every + wireOverdue; limit > 120*time.Millisecond {
		t.Errorf("the allowance of a process that does not wait is %v: too long for 150 ms", limit)
	}
}

// TestEarlierDelaysOfASlowProcess: the time for them does not grow by the factor of a slow process as well.
func TestEarlierDelaysOfASlowProcess(t *testing.T) {
	for slow, want := range map[int]time.Duration{
		1: Every + wireMostLate, 2: 2*Every + wireMostLate, 3: 3*Every + wireMostLate,
	} {
		l := newWire(slow)
		l.r.Stalled, l.j.late = time.Hour, time.Hour
		if v, after := l.until(t, Look); v != Silent || after < want || after > want+want/10 {
			t.Errorf("slow %d: %v after %v, want silent after %v", slow, v, after, want)
		}
	}
}

// TestADelayMayComeAgain: a process of a host that starves is silent after twice the delay that timers had there, up to
// a bound. Limits that bear that delay stay.
func TestADelayMayComeAgain(t *testing.T) {
	for _, c := range []struct {
		slow           int
		starved, limit time.Duration
	}{
		{0, 0, 100 * time.Millisecond},
		{0, 500 * time.Millisecond, time.Second}, // nobody heard it
		{100, 500 * time.Millisecond, time.Second},
		{100, 100 * time.Millisecond, 300 * time.Millisecond},
		{100, time.Hour, wireMostStarved},
	} {
		l := newWire(c.slow)
		l.r.Stalled, l.r.Starved = wireOverdue, c.starved
		for range 100 {
			l.step(Every, 1, 0)
		}
		v, after := l.until(t, Look)
		if v != Silent || after < c.limit || after > c.limit+c.limit/5 {
			t.Errorf("slow %d, delays of its host %v: %v after %v, want silent after %v", c.slow, c.starved, v, after,
				c.limit)
		}
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

// outage plays a silence that ends with a beat. New requests begin meanwhile. It returns the time until the first
// verdict, 0 if there was none.
func (l *looks) outage(lasts time.Duration, back Beat) (verdict time.Duration) {
	for passed := time.Duration(0); passed < lasts; passed += Look {
		if l.step(Look, 0, 0) != Alive && verdict == 0 {
			verdict = passed + Look
		}
		if verdict > 0 && (passed-verdict)%(200*time.Millisecond) == 0 { // a new request to it
			l.j.Rest()
		}
	}
	l.r.Slow = back.Slow
	l.j.Returned(l.now, back)
	if verdict > 0 {
		l.j.Rest()
	}
	l.step(Look, 1, 0)
	l.j.Returned(l.now, back)
	for range 100 {
		l.step(Every, 1, 0)
	}
	return verdict
}

// TestAVerdictIsWrongIfTheSilenceWasShort, or if the process was there without a processor. Else it was right, however
// often it happens.
func TestAVerdictIsWrongIfTheSilenceWasShort(t *testing.T) {
	const ms, sec = time.Millisecond, time.Second
	starved := []time.Duration{9 * sec, 9 * sec, 9 * sec, 9 * sec, 9 * sec}
	for _, c := range []struct {
		what    string
		silence []time.Duration
		back    Beat
		factor  time.Duration
	}{
		{"no beat comes back", nil, Beat{}, 1},
		{"the network is away for long", []time.Duration{300 * ms, sec, 3 * sec, time.Minute}, Beat{Slow: 1}, 1},
		{"the same on a busy host", []time.Duration{sec, sec, 3 * sec}, Beat{Slow: 5}, 1},
		{"a delay just beyond the limit", []time.Duration{150 * ms}, Beat{Slow: 1}, 2},
		{"many delays", []time.Duration{150 * ms, 250 * ms, 350 * ms, 250 * ms}, Beat{Slow: 1}, 2},
		{"the process was stopped for long", []time.Duration{sec, sec}, Beat{Slow: 1, Stalled: sec}, 1},
		{"it is starved", []time.Duration{600 * ms}, Beat{Slow: 4, Stalled: 600 * ms}, 2},
		{"it is starved again and again", starved, Beat{Slow: 4, Stalled: 9 * sec}, mostCaution},
		{"it was starved before", []time.Duration{9 * sec}, Beat{Slow: 4, Stalled: sec}, 1},
	} {
		l := newWire(1)
		for _, d := range c.silence {
			if l.outage(d, c.back) == 0 {
				t.Errorf("%s: a silence of %v has no verdict", c.what, d)
			}
		}
		if c.silence == nil {
			l.until(t, Look)
		}
		if got := l.c.factor(l.now); got != c.factor {
			t.Errorf("%s: factor %d, want %d", c.what, got, c.factor)
		}
	}
}

// TestAFlappingHostIsNoticedSoon: neither late beats nor returns raise the limit to half a second.
func TestAFlappingHostIsNoticedSoon(t *testing.T) {
	l, rng := newWire(1), rand.New(rand.NewPCG(1, 2))
	verdicts, worst := 0, time.Duration(0)
	for range 2000 {
		if after := l.outage(time.Duration(rng.Int64N(int64(time.Second))), Beat{Slow: 1}); after > 0 {
			verdicts++
			worst = max(worst, after)
		}
	}
	if limit := Every + wireMostLate; verdicts < 1000 || worst > limit+2*Look {
		t.Errorf("%d verdicts, the latest %v after the last beat, want %v at most", verdicts, worst, limit)
	}
	if limit := Every + wireMostLate; limit > 400*time.Millisecond {
		t.Errorf("the limit is %v: too long for a takeover within 500 ms", limit)
	}
}

// TestStuckOnTheWireRaisesCaution, since the process beats.
func TestStuckOnTheWireRaisesCaution(t *testing.T) {
	l := newWire(1)
	l.j.deadline = time.Second
	l.r.Pending = 1
	for i := 0; i < 200 && l.step(Every, 1, 0) == Alive; i++ {
		continue
	}
	if l.j.said != Stuck || l.c.factor(l.now) != 2 {
		t.Errorf("without progress it is %v, factor %d; want stuck and 2", l.j.said, l.c.factor(l.now))
	}
}

// TestAProcessRemembersItsDelays for some seconds, the longest of them.
func TestAProcessRemembersItsDelays(t *testing.T) {
	var s stalls
	now := time.Unix(1000, 0)
	if got := s.longest(now); got != 0 {
		t.Errorf("without a delay: %v", got)
	}
	s.note(now, time.Second)
	s.note(now.Add(time.Second), time.Millisecond)
	if got := s.longest(now.Add(stallMemory)); got != time.Second {
		t.Errorf("of two delays: %v", got)
	}
	if got := s.longest(now.Add(stallMemory + time.Millisecond)); got != 0 {
		t.Errorf("long after it: %v", got)
	}
	s.note(now.Add(2*stallMemory), time.Millisecond)
	if got := s.longest(now.Add(2 * stallMemory)); got != time.Millisecond {
		t.Errorf("a later delay: %v", got)
	}
}

// TestTimersSayNothingOfBeats: a long delay of a timer changes no beat, so that limits stay until a verdict was wrong.
func TestTimersSayNothingOfBeats(t *testing.T) {
	now, waited := time.Unix(1000, 0), time.Duration(0)
	p := NewPage(new(Words), "", 1, Thread{Threads: func() Threads {
		waited += time.Second
		return Threads{Waited: waited}
	}})
	p.Delayed(now, LongDelay-1)
	if got := p.Starved(now); got != 0 {
		t.Errorf("a short delay counts as %v", got)
	}
	p.Delayed(now, time.Second)
	if b, got := p.Beat(now), p.Starved(now); b.Stalled != 0 || got != time.Second {
		t.Errorf("the beat says that it was %v late, and the figures %v", b.Stalled, got)
	}
}

// TestAWireHasTheNewestBeat: every message is a sign of life. Before the first beat of a stream, a connection may have
// to be made.
func TestAWireHasTheNewestBeat(t *testing.T) {
	var w Wire
	now := time.Unix(1000, 0)
	if r := w.Sample(); r.Period != opening || r.Beats != 0 {
		t.Errorf("before the first beat: %+v", r)
	}
	w.Hear(now, Beat{Progress: 7, Pending: 2, Slow: 3})
	want := Reading{Beats: 1, Period: Every, Progress: 7, Pending: 2, Slow: 3, Stalled: wireOverdue}
	if r := w.Sample(); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	w.Live()
	if r := w.Sample(); r.Beats != 2 || r.Progress != 7 {
		t.Errorf("after another message: %+v", r)
	}
	w.Hear(now, Beat{Pending: 2, Period: 3 * Every})
	if r := w.Sample(); r.Period != 3*Every || w.Rows() != 1 {
		t.Errorf("of a process with many watchers: %+v, and %d rows", r, w.Rows())
	}
	w.Off()
	if r := w.Sample(); r.Period != opening || r.Pending != 0 {
		t.Errorf("after the end of the stream: %+v", r)
	}
	w.Opening(now, true)
	if r := w.Sample(); r.Period != connected {
		t.Errorf("when the stream is opened on a connection: %+v", r)
	}
	var none *Wire
	none.Live()
}

// TestDelaysOfBeatsAreKnownAfterSome: until then, the waits of the process's threads count in full. What an old beat
// said counts no more.
func TestDelaysOfBeatsAreKnownAfterSome(t *testing.T) {
	var w Wire
	now := time.Unix(1000, 0)
	hear := func(n int) {
		for range n {
			now = now.Add(Every)
			w.Hear(now, Beat{Slow: 9, Stalled: time.Millisecond})
		}
	}
	hear(enough - 1)
	if got := slower(w.Sample()); got != wireMostSlow {
		t.Errorf("after %d beats it counts as slower by %d, want %d", enough-1, got, wireMostSlow)
	}
	hear(1)
	if got := slower(w.Sample()); got != wireSlow {
		t.Errorf("after %d beats it counts as slower by %d, want %d", enough, got, wireSlow)
	}
	w.Off()
	now = now.Add(stallMemory)
	w.Opening(now, true)
	if r := w.Sample(); r.Slow != 9 || slower(r) != wireSlow {
		t.Errorf("a stream that is opened soon finds %+v", r)
	}
	hear(1)
	if got := slower(w.Sample()); got != wireMostSlow {
		t.Errorf("a beat after a long time counts as slower by %d, want %d", got, wireMostSlow)
	}
	hear(enough)
	w.Off()
	now = now.Add(stallMemory + 1)
	w.Opening(now, true)
	if r := w.Sample(); r.Slow != 0 || r.Stalled != 0 {
		t.Errorf("a stream that is opened late finds %+v", r)
	}
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

// TestMoreWatchersGetFewerBeats: a process sends about as many in all.
func TestMoreWatchersGetFewerBeats(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: Every, 1: Every, few: Every, few + 1: 2 * Every, 256: 16 * Every, 1024: 64 * Every,
	} {
		if got := pace(n); got != want {
			t.Errorf("%d watchers: a beat every %v, want %v", n, got, want)
		}
	}
	p := NewPage(new(Words), "", 1, Thread{})
	var leave []func()
	for range few + 1 {
		leave = append(leave, p.Listen())
	}
	if got := p.Beat(time.Now()).Period; got != 2*Every {
		t.Errorf("with %d watchers: %v", few+1, got)
	}
	leave[0]()
	if got := p.Beat(time.Now()).Period; got != Every {
		t.Errorf("with %d watchers: %v", few, got)
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
		{0, shareEvery / shareNoise, 2}, // too short to count
		{0, 50 * time.Millisecond, mostSlow},
		{0, 0, mostSlow - 1},
	} {
		is.Ran, is.Waited, now = is.Ran+c.ran, is.Waited+c.waited, now.Add(shareEvery)
		if got := s.slow(now, threads); got != c.want {
			t.Errorf("answer %d: slow %d, want %d", i, got, c.want)
		}
		if got := s.slow(now.Add(shareEvery/2), threads); got != c.want || asked != i+1 {
			t.Errorf("answer %d: slow %d after half the time, %d questions", i, got, asked)
		}
	}
	now = now.Add(50 * shareEvery)
	if got := s.slow(now, threads); got != mostSlow-51 {
		t.Errorf("long after the last answer: slow %d, want %d", got, mostSlow-51)
	}
	if got := (&share{}).slow(now, nil); got != 1 {
		t.Errorf("a kernel that cannot be asked: slow %d", got)
	}
}
