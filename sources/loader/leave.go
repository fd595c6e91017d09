package loader

import (
	"context"
	"time"

	"millrace/proto"
)

// absence is how long one that leaves waits for an orchestrator that is not there: as a rule the run has ended with it.
const absence = 300 * time.Millisecond

// leave waits until the process is asked to leave. From then on it serves what it holds, until it was told that all
// of it is handed over, nobody is there who could tell, or its grace is spent.
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
		out.leaving(reason)
	}
	l.cfg.Fail.Hit("loader/leave/after")
	late := l.cfg.Clock.After(leaveGrace)
	for here := l.cfg.Clock.Now(); l.cfg.Clock.Now().Sub(here) < absence; {
		select {
		case <-ctx.Done():
			return nil
		case <-late:
			return &farewell{"nobody took over in time"}
		case <-l.cfg.Clock.After(absence / 10):
		}
		if l.connected() {
			here = l.cfg.Clock.Now()
		}
	}
	return &farewell{"no orchestrator is there to hand over to"}
}

// connected tells whether an orchestrator listens.
func (l *Loader) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.online
}

// leaving is why the process was asked to leave, empty where it was not.
func (l *Loader) leaving() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.going
}

// leaving tells the orchestrator. A lost stream is no fault: the next session tells it again.
func (r *reporter) leaving(reason string) {
	_ = r.send(0, &proto.LoaderEvent{Event: &proto.LoaderEvent_Leaving{Leaving: &proto.Leaving{Reason: reason}}})
}
