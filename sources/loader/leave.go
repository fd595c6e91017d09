package loader

import (
	"context"

	"millrace/proto"
)

// leave waits until the process is asked to leave. From then on it serves what it holds, until it was told that all of it is handed over
// or its grace is spent.
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
	select {
	case <-ctx.Done():
		return nil
	case <-l.cfg.Clock.After(leaveGrace):
		return &farewell{"nobody took over in time"}
	}
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
