package heartbeat

import (
	"testing"
	"time"
)

// looks plays readings to a judge.
type looks struct {
	j     *Judge
	c     *Caution
	now   time.Time
	r     Reading
	since time.Duration
}

func newLooks(deadline time.Duration) *looks {
	c := new(Caution)
	l := &looks{j: NewJudge(deadline, c), c: c, now: time.Unix(1000, 0), r: Reading{Pid: 1, Beats: 1, Period: Active}}
	l.step(Look, 0, 0)
	return l
}

func (l *looks) step(passed time.Duration, beats, progress uint64) Verdict {
	l.now = l.now.Add(passed)
	l.since += passed
	if beats > 0 {
		l.since = 0
	}
	l.r.Beats += beats
	l.r.Progress += progress
	return l.j.Look(l.now, l.r)
}

// until looks at intervals of passed, without a beat, until the verdict is not Alive.
func (l *looks) until(t *testing.T, passed time.Duration) (Verdict, time.Duration) {
	t.Helper()
	*l.c = Caution{}
	for range 100_000 {
		if v := l.step(passed, 0, 0); v != Alive {
			return v, l.since
		}
	}
	t.Fatal("the process stays alive")
	return Alive, 0
}

func TestBeatsMissedAreSilence(t *testing.T) {
	l := newLooks(time.Hour)
	for range 1000 {
		if v := l.step(Look, 1, 0); v != Alive {
			t.Fatalf("while it beats it is %v", v)
		}
	}
	if v, after := l.until(t, Look); v != Silent || after != Active+overdue {
		t.Errorf("%v after %v", v, after)
	}
	if v := l.step(Look, 1, 0); v != Alive {
		t.Errorf("with a new beat it is %v", v)
	}
	l = newLooks(time.Hour)
	l.r.Period = Idle
	l.step(Look, 1, 0)
	if v, after := l.until(t, Look); v != Silent || after != Idle+overdue {
		t.Errorf("idle: %v after %v", v, after)
	}
}

// TestTheKernelIsBelieved: a process that is down is silent at once.
func TestTheKernelIsBelieved(t *testing.T) {
	l := newLooks(time.Hour)
	l.r.Down = true
	if v := l.step(Look, 0, 0); v != Silent {
		t.Errorf("a process that is down is %v", v)
	}
	l.r.Down = false
	if v := l.step(Look, 1, 0); v != Alive {
		t.Errorf("a process that is up again is %v", v)
	}
}

// TestARunningProcessIsAlive: without beats, until the deadline for progress.
func TestARunningProcessIsAlive(t *testing.T) {
	l := newLooks(time.Second)
	l.r.Pending = 1
	for d := time.Duration(0); d < time.Second-2*Look; d += Look {
		l.r.Ran = d%(30*time.Millisecond) == 0 // other processes run in between
		if v := l.step(Look, 0, 0); v != Alive {
			t.Fatalf("while it runs it is %v after %v", v, d)
		}
	}
	l.r.Ran = true
	if v, _ := l.until(t, Look); v != Stuck {
		t.Errorf("a process that runs without progress is %v", v)
	}
}

// TestAWaitingProcessIsLate: without beats and processor time, until the deadline for progress. The deadline counts the
// processor time that the host gave.
func TestAWaitingProcessIsLate(t *testing.T) {
	for _, slow := range []int{1, 20} {
		l := newLooks(time.Second)
		l.r.Pending, l.r.Waits, l.r.Slow = 1, true, slow
		if v, after := l.until(t, Look); v != Stuck || after != time.Duration(slow)*time.Second+Look {
			t.Errorf("a process that waits is %v after %v, want %v times a second", v, after, slow)
		}
	}
	l := newLooks(time.Hour)
	l.r.Pending, l.r.Waits = 1, true
	l.step(time.Minute, 0, 0)
	l.r.Waits = false
	if v, after := l.until(t, Look); v != Silent || after != time.Minute+Look+Active+overdue {
		t.Errorf("a process that waits no more is %v after %v", v, after)
	}
}

// TestSuspicionsRaiseCaution: for a limited time, up to a bound. The kernel's reports do not raise it.
func TestSuspicionsRaiseCaution(t *testing.T) {
	l := newLooks(time.Second)
	l.r.Pending = 1
	suspect := func(want Verdict, beats uint64) time.Duration {
		t.Helper()
		l.j.Rest()
		l.step(Look, 1, 1)
		begin := l.now
		for range 100_000 {
			if v := l.step(Look, beats, 0); v == want {
				return l.now.Sub(begin)
			}
		}
		t.Fatalf("it is never %v", want)
		return 0
	}
	down := func() {
		l.r.Down = true
		if took := suspect(Silent, 0); took != Look {
			t.Errorf("a process that is down was noticed after %v", took)
		}
		l.r.Down = false
	}
	for _, times := range []time.Duration{1, 2, 4, 8, 16, 16} {
		down()
		if took := suspect(Silent, 0); took != Active+times*overdue {
			t.Errorf("silent after %v, want %d times %v", took, times, overdue)
		}
	}
	if took := suspect(Stuck, 1); took != mostCaution*time.Second {
		t.Errorf("stuck after %v", took)
	}
	l.now = l.now.Add(calm)
	if took := suspect(Stuck, 1); took != time.Second {
		t.Errorf("long after the last suspicion it is stuck after %v", took)
	}
	other := &looks{j: NewJudge(time.Hour, l.c), c: l.c, now: l.now, r: Reading{Pid: 2, Beats: 1, Period: Active}}
	other.step(Look, 1, 0)
	for range int((Active + 2*overdue) / Look) {
		if v := other.j.said; v != Alive {
			t.Fatalf("another of the same host is %v too early", v)
		}
		other.step(Look, 0, 0)
	}
	if v := other.j.said; v != Silent {
		t.Errorf("another of the same host is %v", v)
	}
}

// TestALateLookIsNoSilence: the host that delayed the watcher may have delayed the watched process.
func TestALateLookIsNoSilence(t *testing.T) {
	l := newLooks(time.Second)
	l.r.Pending = 1
	looks := int((Active + overdue) / Look)
	for range looks - 1 {
		if v := l.step(time.Hour, 0, 0); v != Alive {
			t.Fatalf("after a suspension it is %v", v)
		}
	}
	if v := l.step(time.Hour, 0, 0); v != Silent {
		t.Fatalf("after %d looks without a beat it is %v, however long they took", looks, v)
	}
}

// TestLateBeatsRaiseTheAllowance: for a limited time, up to a bound.
func TestLateBeatsRaiseTheAllowance(t *testing.T) {
	l := newLooks(time.Hour)
	for range 15 {
		l.step(Look, 0, 0)
	}
	l.step(Look, 1, 0)
	late := 15*Look - Active
	if _, after := l.until(t, Look); after != Active+2*late {
		t.Errorf("after a beat that was %v late it is silent after %v", late, after)
	}
	for range 20 {
		l.step(Look, 1, 0)
		l.until(t, Look)
	}
	l.step(Look, 1, 0)
	if _, after := l.until(t, Look); after != Active+mostLate {
		t.Errorf("after many late beats it is silent after %v", after)
	}
	for range 10 * memory / Look {
		l.step(Look, 1, 0)
	}
	if _, after := l.until(t, Look); after != Active+overdue {
		t.Errorf("long after late beats it is silent after %v", after)
	}
}

func TestBeatsWithoutProgressAreStuck(t *testing.T) {
	l := newLooks(time.Second)
	beat := func(d time.Duration, progress uint64) (v Verdict) {
		for ; d > 0; d -= Look {
			if v = l.step(Look, 1, progress); v != Alive {
				return v
			}
		}
		return v
	}
	if v := beat(time.Minute, 0); v != Alive {
		t.Errorf("with nothing pending it is %v", v)
	}
	l.r.Pending = 1
	if v := beat(time.Minute, 1); v != Alive {
		t.Errorf("while it comes forward it is %v", v)
	}
	if v := beat(time.Second-2*Look, 0); v != Alive {
		t.Errorf("before the deadline it is %v", v)
	}
	if v := beat(4*Look, 0); v != Stuck {
		t.Errorf("after the deadline it is %v", v)
	}
	l.j.Rest()
	if v := beat(time.Second-2*Look, 0); v != Alive {
		t.Errorf("after a rest it is %v", v)
	}
}
