package query

import (
	"context"
	"errors"

	"millrace"
	"millrace/app/exit"
	"millrace/app/report"
	"millrace/app/rundir"
	"millrace/internal/wire"
	"millrace/proto"
)

// Mixture returns the mixture of a run in progress.
func (r Run) Mixture(ctx context.Context) (*report.Mixture, error) {
	if err := r.mustRun(); err != nil {
		return nil, err
	}
	reply, err := rundir.AskStatus(ctx, r.Dir)
	if err != nil {
		return nil, exit.Failuref("the orchestrator of %s does not answer: %v", r.Dir, err)
	}
	return report.NewMixture(reply.Mixture), nil
}

// Change asks a run in progress for a change of its mixture, and returns the change that it made. A request that the
// run refuses is an error with the status of wrong usage.
func (r Run) Change(ctx context.Context, of Request) (*report.Change, error) {
	if err := r.mustRun(); err != nil {
		return nil, err
	}
	request := &proto.MixRequest{HasFrom: of.HasFrom, From: of.From, Later: of.Later}
	of.Change(request)
	var reply *proto.MixReply
	var refused error
	err := rundir.Ask(r.Dir, func(client proto.OrchestratorClient) (err error) {
		reply, err = client.Mix(ctx, request)
		refused = wire.FromStatus(err)
		return err
	})
	if errors.Is(refused, millrace.ErrInvalid) {
		return nil, exit.Usagef("millrace mix: %w", refused)
	}
	if err != nil {
		return nil, exit.Failuref("change the mixture of %s: %v", r.Dir, err)
	}
	change := report.NewChange(reply.Change)
	return &change, nil
}

// mustRun returns an error if no `up` runs on the directory.
func (r Run) mustRun() error {
	running, err := r.isRunning()
	if err == nil && !running {
		err = exit.Failuref("no `millrace up` runs on %s: only the mixture of a running run can be changed; "+
			"`millrace status %s` lists earlier changes", r.Dir, r.Dir)
	}
	return err
}
