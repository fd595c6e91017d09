package supervisor

import (
	"syscall"
	"time"
)

// wave is the children of one role during a stop. They are asked to leave at the time at, or earlier when all waves
// before are gone. They are killed at the time kill.
type wave struct {
	children []int
	at, kill time.Time
	asked    bool
	killed   bool
}

// next returns the time at which the wave needs attention.
func (w *wave) next() time.Time {
	if !w.asked {
		return w.at
	}
	return w.kill
}

// shutdown asks the roles to leave one after the other, in the reverse of their starting order. So a consumer is gone
// before its producers. The waves share the grace: each waits at most its part for the one before. All are killed at
// the end of the grace.
type shutdown struct {
	waves []wave
	asks  []syscall.Signal // by child: it asks the child to leave
}

// newShutdown returns the shutdown of children with these roles, in starting order. asks has the signal that asks each
// to leave.
func newShutdown(roles []string, asks []syscall.Signal, now time.Time, grace time.Duration) shutdown {
	s := shutdown{asks: asks}
	waveOf := map[string]int{}
	for _, role := range roles { // children that were added come last, and leave with the others of their role
		if _, ok := waveOf[role]; !ok {
			waveOf[role] = len(waveOf)
			s.waves = append(s.waves, wave{kill: now.Add(grace)})
		}
	}
	for i := len(roles) - 1; i >= 0; i-- {
		w := len(s.waves) - 1 - waveOf[roles[i]]
		s.waves[w].children = append(s.waves[w].children, i)
	}
	for w := range s.waves {
		s.waves[w].at = now.Add(grace * time.Duration(w) / time.Duration(len(s.waves)))
	}
	return s
}

// signals asks the next wave to leave when the earlier ones are gone or late, and kills the children that outlived the
// grace. pidOf returns the process of a child, 0 if it has none.
func (s shutdown) signals(now time.Time, pidOf func(child int) int) []action {
	var out []action
	earlierGone := true
	for w := range s.waves {
		v := &s.waves[w]
		if !v.asked && (earlierGone || !now.Before(v.at)) {
			v.asked = true
			for _, i := range v.children {
				out = append(out, signalAll([]int{i}, pidOf, s.asks[i])...)
			}
		}
		if !v.killed && !now.Before(v.kill) {
			v.killed = true
			out = append(out, signalAll(v.children, pidOf, syscall.SIGKILL)...)
		}
		for _, i := range v.children {
			earlierGone = earlierGone && pidOf(i) == 0
		}
	}
	return out
}

// killAll kills every child at once.
func (s shutdown) killAll(pidOf func(child int) int) []action {
	var out []action
	for w := range s.waves {
		s.waves[w].asked, s.waves[w].killed = true, true
		out = append(out, signalAll(s.waves[w].children, pidOf, syscall.SIGKILL)...)
	}
	return out
}

// deadlines calls consider with the time at which each wave needs attention.
func (s shutdown) deadlines(consider func(time.Time)) {
	for w := range s.waves {
		if !s.waves[w].killed {
			consider(s.waves[w].next())
		}
	}
}

func signalAll(children []int, pidOf func(child int) int, signal syscall.Signal) []action {
	var out []action
	for _, i := range children {
		if pid := pidOf(i); pid != 0 {
			out = append(out, acSignal{pid, signal})
		}
	}
	return out
}
