package heartbeat

import "time"

// Verdict is the state of a watched process, as its judge sees it.
type Verdict int

// The verdicts.
const (
	Alive  Verdict = iota
	Silent         // dead or stopped, or without beats and progress
	Stuck          // beats, but makes no progress on its requests
)

// String returns the word for reasons: "loader-0 is silent".
func (v Verdict) String() string {
	switch v {
	case Silent:
		return "silent"
	case Stuck:
		return "stuck"
	}
	return "alive"
}

// Look is the interval between two looks of a watcher.
const Look = 2 * time.Millisecond

// The allowances of a judge, in time counted as the comment of Judge describes.
const (
	overdue  = 40 * time.Millisecond  // delay of a beat that is still normal
	mostLate = 400 * time.Millisecond // the same after other late beats, at most
	memory   = time.Minute            // time for which earlier late beats count
	mostLook = 10 * Look              // the most that one look adds towards the deadline
)

// The same on the wire, where no other measure confirms a silence. A lost packet costs a few beats. A process that is
// short of processor time says so in its beats, and counts as slower, up to a bound.
const (
	wireOverdue     = 90 * time.Millisecond
	wireMostLate    = 300 * time.Millisecond
	wireLook        = 2 * Look // the most that one look adds to the silence
	wireMostSlow    = 3
	wireSlow        = 2               // the same while its own beats are in time
	wireStalled     = wireOverdue / 3 // each such delay of its own beats adds one
	wireMostCaution = 2               // the largest factor, unless processes are starved
	wireMostStarved = 4 * time.Second // the most that the delays of a starved host allow
)

// Judge turns readings of one page into verdicts. It is pure: time comes from its caller. Not safe for concurrent use.
//
// A process that the kernel has stopped or is ending is silent at once. Any other process may only be short of
// processor time, so signs of life decide: a beat, used processor time, or a thread that waits for a processor or a
// device. Beats alone would not suffice: garbage collection, a large copy or a busy host may delay them for long. A
// process that runs without progress is stuck, not silent.
//
// Every look without a sign of life adds to the silence, at most the time Look. If the host delayed the watcher for
// longer, it may have delayed the watched process, too. Earlier late beats raise the allowance for the next beat, and
// so do earlier suspicions (Caution).
//
// The time without progress counts only by the share of processor time that the host gave the process.
type Judge struct {
	deadline time.Duration
	caution  *Caution
	isWire   bool

	said    Verdict
	looked  bool
	at      time.Time // of the last look
	last    Reading
	silence time.Duration // counted since the last sign of life
	late    time.Duration // how late recent beats were
	still   time.Duration // counted since the last progress, with requests pending

	// The first verdict of silence on the wire since the last beat.
	silentAt time.Time // zero: there was none
	limit    time.Duration
}

// NewJudge returns a judge. Its verdict is Stuck when requests are pending and there was no progress for the deadline.
// Judges of one host share a caution.
func NewJudge(deadline time.Duration, caution *Caution) *Judge {
	return &Judge{deadline: deadline, caution: caution}
}

// NewWireJudge returns a judge of a process of another host. Its readings are of a Wire. The kernel of that host cannot
// be asked, so the allowances are wider. A silence is a suspicion only if a beat follows: see Returned. The judges of
// such processes share a caution of their own.
func NewWireJudge(deadline time.Duration, caution *Caution) *Judge {
	return &Judge{deadline: deadline, caution: caution, isWire: true}
}

// Look takes a reading and returns the verdict. A watcher that paused calls Rest before its next look.
func (j *Judge) Look(now time.Time, r Reading) Verdict {
	was := j.last
	passed := now.Sub(j.at)
	j.last, j.at = r, now
	if !j.looked || r.Beats != was.Beats || r.Ran || r.Waits {
		if j.looked {
			j.late = max(j.late-j.late*min(passed, memory)/memory, j.silence-was.Period)
		}
		j.looked, j.silence = true, 0
	} else {
		j.silence += j.counted(passed, r)
	}
	if r.Progress != was.Progress || r.Pending == 0 {
		j.still = 0
	} else {
		j.still += min(passed, mostLook) / time.Duration(max(r.Slow, 1))
	}
	said, factor := j.said, j.caution.factor(now)
	j.said = j.think(r, factor)
	switch {
	case said != Alive || j.said == Alive || r.Down:
	case !j.isWire || j.said == Stuck:
		j.caution.suspect(now, mostCaution)
	case j.silentAt.IsZero():
		j.silentAt, j.limit = now, j.allowance(r, factor)
	}
	return j.said
}

// counted returns the part of the time since the last look that counts as silence.
func (j *Judge) counted(passed time.Duration, r Reading) time.Duration {
	if j.isWire {
		return min(passed, wireLook) / slower(r)
	}
	return min(passed, Look)
}

// slower returns the factor by which a process of another host counts as slower. Its threads may wait for a processor
// often, but not for long: then its beats are in time. So the delays of its own beats bound the factor.
func slower(r Reading) time.Duration {
	return min(time.Duration(max(r.Slow, 1)), wireMostSlow, max(wireSlow, 1+r.Stalled/wireStalled))
}

// Returned notes a beat of a process of another host. If the process was judged silent before, the verdict may have
// been wrong:
//
//   - The beat comes so soon that twice the limit would have borne the silence. Then the path was late. The next limit
//     is higher, within a bound.
//   - The process was there, but its host gave it no processor. Its standby may fare no better, and each would repeat
//     the work of the other. The next limit is higher, for any length of the silence.
//
// Otherwise the silence was an outage of the host, the network, or the process. A longer wait would not have helped.
func (j *Judge) Returned(now time.Time, b Beat) {
	if j.silentAt.IsZero() {
		return
	}
	since := now.Sub(j.silentAt)
	j.silentAt = time.Time{}
	switch {
	case b.Slow > 1 && b.Stalled > (since+j.limit)/2:
		j.caution.suspect(now, mostCaution)
	case since < j.limit:
		j.caution.suspect(now, wireMostCaution)
	}
}

func (j *Judge) think(r Reading, factor time.Duration) Verdict {
	switch {
	case r.Down, j.silence >= j.allowance(r, factor):
		return Silent
	case j.still >= factor*j.deadline:
		return Stuck
	}
	return Alive
}

// allowance returns the silence that is too long.
func (j *Judge) allowance(r Reading, factor time.Duration) time.Duration {
	if j.isWire {
		return r.Period + max(factor*wireOverdue, min(2*j.late, wireMostLate/slower(r)),
			min(2*r.Starved, wireMostStarved)/slower(r))
	}
	return r.Period + factor*max(overdue, min(2*j.late, mostLate))
}

// Rest forgets the silence and the lack of progress so far, because the watcher paused.
func (j *Judge) Rest() { j.said, j.looked, j.silence, j.still = Alive, false, 0, 0 }
