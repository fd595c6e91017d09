package loader

import (
	"context"
	"time"

	"millrace/proto"
)

// farewell is the reason for which a loader ends without a fault.
type farewell struct{ reason string }

func (e *farewell) Error() string { return e.reason }

// refused is the error of a loader that the orchestrator refuses for its program or its name. Another try would be
// refused too.
type refused struct{ reason string }

func (e *refused) Error() string { return "refused by the orchestrator: " + e.reason }

// absence is the longest wait of a leaving loader for a missing orchestrator. In most cases the run has ended.
const absence = 300 * time.Millisecond

// leave waits until the process is asked to leave. Then it serves on until the orchestrator has handed over all
// stripes, no orchestrator is there, or the grace period ends.
func (l *Loader) leave(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.cfg.Leave:
	}
	const reason = "asked to leave"
	l.cfg.Fail.Hit("loader/leave/before")
	l.mu.Lock()
	l.going = reason
	out := l.out
	l.mu.Unlock()
	if out != nil {
		out.tellLeaving(reason, l.cfg.ForGood())
	}
	l.cfg.Fail.Hit("loader/leave/after")
	late := l.cfg.Clock.After(grace(l.cfg.ForGood()))
	for here := l.cfg.Clock.Now(); l.cfg.Clock.Now().Sub(here) < absence; {
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			return &farewell{"no loader took over in time"}
		case <-l.cfg.Clock.After(absence / 10):
		}
		if l.isConnected() {
			here = l.cfg.Clock.Now()
		}
	}
	return &farewell{"no orchestrator is there to hand over to"}
}

// grace returns the longest wait of a leaving loader for others to take over all stripes. If it leaves for good, they
// first make themselves ready.
func grace(forGood bool) time.Duration {
	if forGood {
		return forGoodGrace
	}
	return leaveGrace
}

// isConnected reports whether an orchestrator listens.
func (l *Loader) isConnected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.online
}

// leaveReason returns the reason why the process was asked to leave, empty if it was not.
func (l *Loader) leaveReason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.going
}

// tellLeaving reports the reason to the orchestrator. A lost stream is no fault: the next session reports it again.
func (r *reporter) tellLeaving(reason string, forGood bool) {
	leaving := &proto.Leaving{Reason: reason, ForGood: forGood}
	r.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Leaving{Leaving: leaving}})
}
