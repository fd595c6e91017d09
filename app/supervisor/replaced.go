package supervisor

import (
	"fmt"
	"syscall"
	"time"
)

const (
	// formerGrace is the time that a replaced process has to leave. A stopped process that resumes learns that its
	// terms are over.
	formerGrace = 60 * time.Second
	// maxFormer bounds the replaced processes of one child that still exist, and so the memory they hold.
	maxFormer = 4
)

// former is a process that was fenced and replaced while it existed. Its successor runs already.
type former struct {
	child, pid int
	started    time.Time
	kill       time.Time // killed then, if it has not left
	killed     bool
}

// formers are the replaced processes that still exist, oldest first.
type formers []former

// add takes a replaced process, and ends the oldest ones of its child beyond maxFormer.
func (fs *formers) add(f former) []action {
	*fs = append(*fs, f)
	var out []action
	n := 0
	for i := len(*fs) - 1; i >= 0; i-- {
		if old := &(*fs)[i]; old.child == f.child {
			if n++; n > maxFormer {
				out = append(out, old.end()...)
			}
		}
	}
	return out
}

// take removes a process that has exited.
func (fs *formers) take(pid int) (former, bool) {
	for i, f := range *fs {
		if f.pid == pid {
			*fs = append((*fs)[:i], (*fs)[i+1:]...)
			return f, true
		}
	}
	return former{}, false
}

// endLate ends the processes that have used up their grace.
func (fs formers) endLate(now time.Time) []action {
	var out []action
	for i := range fs {
		if !now.Before(fs[i].kill) {
			out = append(out, fs[i].end()...)
		}
	}
	return out
}

// endAll ends all processes, because the run is stopping and their reports no longer count.
func (fs formers) endAll() []action {
	var out []action
	for i := range fs {
		out = append(out, fs[i].end()...)
	}
	return out
}

// deadlines calls consider with the time at which each process is killed.
func (fs formers) deadlines(consider func(time.Time)) {
	for i := range fs {
		if !fs[i].killed {
			consider(fs[i].kill)
		}
	}
}

func (f *former) end() []action {
	if f.killed {
		return nil
	}
	f.killed = true
	return []action{acSignal{f.pid, syscall.SIGKILL}}
}

func formerLine(name string, pid int, exit Exit) string {
	switch {
	case exit.Crash != "":
		return fmt.Sprintf("the fenced %s (pid %d) had crashed (%s); stack in %s", name, pid, exit.LastLine, exit.Crash)
	case exit.Signal == 0 && exit.Code == 0:
		return fmt.Sprintf("the fenced %s (pid %d) has left", name, pid)
	}
	return fmt.Sprintf("the fenced %s (pid %d) died (%v)", name, pid, exit)
}
