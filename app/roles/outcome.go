package roles

import (
	"context"
	"errors"
	"syscall"

	"millrace"
	"millrace/app/exit"
	"millrace/checkpoint"
	"millrace/orchestrator/lease/hosts"
)

// overElsewhere ends the orchestrator of this host when the run has ended on another one.
type overElsewhere struct{ hosts.Outcome }

// Error implements error.
func (o *overElsewhere) Error() string { return "the run ended on another host: " + o.Reason }

// orchestrateSpread runs the orchestrator of one of several hosts. It ends with the run, on every host. If this host
// was the last to plan the run, it publishes the outcome to the other hosts.
func (r *role) orchestrateSpread(ctx context.Context, o Planning) error {
	client, err := r.network.Client(ctx)
	if err != nil {
		return err
	}
	running, end := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() { // ends with running
		defer close(watched)
		if outcome, err := client.AwaitOutcome(running, r.site.Incarnation); err == nil {
			end(&overElsewhere{outcome})
		}
	}()
	r.ready() // to stand by
	err = r.orchestrate(running, o)
	var elsewhere *overElsewhere
	isOver := errors.As(context.Cause(running), &elsewhere)
	end(nil)
	<-watched
	switch {
	case isOver && elsewhere.Reason == "":
		return nil
	case isOver:
		return exit.Failuref("%s", elsewhere.Reason)
	case r.leads && isEnd(ctx, err):
		outcome := hosts.Outcome{Incarnation: r.site.Incarnation}
		if err != nil {
			outcome.Reason = err.Error()
		}
		return errors.Join(err, client.Record(context.WithoutCancel(ctx), outcome))
	}
	return err
}

// isEnd reports whether a leader's error, or nil, ends the run on all hosts. Else only this host cannot continue, and
// another one may.
func isEnd(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, millrace.ErrFenced) && !errors.Is(err, checkpoint.ErrDiskFull) &&
		!errors.Is(err, syscall.EIO) && !errors.Is(err, context.Canceled)
}
