package heartbeat

import "time"

// Verdict is what a watcher may think of the process that it watches.
type Verdict int

// The verdicts.
const (
	Alive  Verdict = iota
	Silent         // dead or stopped, or neither beats nor runs
	Stuck          // it beats, but what was asked of it does not come forward
)

// String names the verdict as it stands in reasons: "loader-0 is silent".
func (v Verdict) String() string {
	switch v {
	case Silent:
		return "silent"
	case Stuck:
		return "stuck"
	}
	return "alive"
}

// Look is how often a watcher looks while it waits for something.
const Look = 2 * time.Millisecond

// What a judge allows, in time counted as Judge says.
const (
	overdue  = 40 * time.Millisecond  // how late a beat may be
	mostLate = 400 * time.Millisecond // how late where others were late as well
	memory   = time.Minute            // how fast it is forgotten that they were
	mostLook = 10 * Look              // a look counts for no more towards the deadline
)

// Judge turns readings of one page into verdicts. It is pure: time comes from its caller. Not safe for concurrent use.
//
// Of a process that the kernel has stopped or is ending it is sure at once. Otherwise it may only be short of processor time, and signs
// of life decide: a beat, or time that it ran. (A runtime that collects garbage or copies something large may keep its beats waiting for
// long; a process that runs without ever coming forward is stuck, not silent.) Every look without a sign counts as silence, for Look at
// most: what the host kept the watcher waiting beyond that it grants to the watched as well. Beats that came late before stretch the
// allowance for the next one, and so do suspicions of before (Caution).
type Judge struct {
	deadline time.Duration
	caution  *Caution

	said    Verdict
	looked  bool
	at      time.Time // of the last look
	last    Reading
	silence time.Duration // counted since the last sign of life
	late    time.Duration // how late beats have been of late
	still   time.Duration // counted since the last progress, with requests pending
}

// NewJudge returns a judge who calls it stuck when requests are pending and nothing came forward for a deadline. Judges of one host share
// a caution.
func NewJudge(deadline time.Duration, caution *Caution) *Judge {
	return &Judge{deadline: deadline, caution: caution}
}

// Look takes a reading and says what to think. A watcher that did not look for a while calls Rest first.
func (j *Judge) Look(now time.Time, r Reading) Verdict {
	was := j.last
	passed := now.Sub(j.at)
	j.last, j.at = r, now
	if !j.looked || r.Beats != was.Beats || r.Ran {
		if j.looked {
			j.late = max(j.late-j.late*min(passed, memory)/memory, j.silence-was.Period)
		}
		j.looked, j.silence = true, 0
	} else {
		j.silence += min(passed, Look)
	}
	if r.Progress != was.Progress || r.Pending == 0 {
		j.still = 0
	} else {
		j.still += min(passed, mostLook)
	}
	said := j.said
	j.said = j.think(r, j.caution.factor(now))
	if said == Alive && j.said != Alive && !r.Down {
		j.caution.suspected(now)
	}
	return j.said
}

func (j *Judge) think(r Reading, factor time.Duration) Verdict {
	switch {
	case r.Down, j.silence >= r.Period+factor*max(overdue, min(2*j.late, mostLate)):
		return Silent
	case j.still >= factor*j.deadline:
		return Stuck
	}
	return Alive
}

// Rest forgets how long nothing was seen: the watcher was doing something else.
func (j *Judge) Rest() { j.said, j.looked, j.silence, j.still = Alive, false, 0, 0 }
