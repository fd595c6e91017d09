package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"millrace"
	"millrace/checkpoint"
	"millrace/internal/app/config"
	"millrace/internal/app/config/identity"
	"millrace/internal/app/setup"
	"millrace/internal/app/supervisor"
	"millrace/internal/seam"
	"millrace/internal/wire"
	"millrace/orchestrator"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/proto"
	"millrace/sources"
)

func orchestratorCommand() *cobra.Command {
	r := &role{}
	var metrics, up string
	c := &cobra.Command{Use: "orchestrator", Short: "Plan, journal and publish (started by up)"}
	roleFlags(c, r)
	c.Flags().StringVar(&metrics, "metrics", "", "address to serve /metrics on")
	c.Flags().StringVar(&up, "up", "", "names the up that started this")
	c.RunE = func(c *cobra.Command, _ []string) error {
		ctx, stop, err := r.start(c.Context())
		if err != nil {
			return err
		}
		defer stop()
		return departing(ctx, r.orchestrate(ctx, metrics, up))
	}
	return c
}

// asFailure makes any error of a running role a failure of the run.
func asFailure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return &failure{err.Error()}
}

// departing tells the supervisor of an end that is not the run's: the orchestrator was asked to leave, or its disk is full or failed.
func departing(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, checkpoint.ErrDiskFull):
		return &departure{exitNoRoom, err.Error()}
	case errors.Is(err, syscall.EIO):
		return &departure{exitDisk, err.Error()}
	case (err == nil || errors.Is(err, context.Canceled)) && errors.Is(context.Cause(ctx), supervisor.ErrStopped):
		return &departure{status: exitAsked}
	}
	return asFailure(err)
}

// die ends the process where the journal's disk fails beneath it. A damaged journal is the run's failure; of a failed write only a fresh
// process can find out what it has left.
func die(err error) {
	fmt.Fprintln(os.Stderr, err)
	switch {
	case errors.Is(err, checkpoint.ErrDiskFull):
		os.Exit(exitNoRoom)
	case errors.Is(err, checkpoint.ErrCorrupt):
		os.Exit(exitFailed)
	}
	os.Exit(exitDisk)
}

func (r *role) orchestrate(ctx context.Context, metrics, up string) error {
	cfg, err := orchestratorConfig(r.cfg, r.world)
	if err != nil {
		return err
	}
	cfg.Log, cfg.Up = r.log, up
	store, err := checkpoint.Open(checkpoint.Config{Dir: journalDir(r.runDir), CreatedBy: programVersion(), Logger: r.log, Fail: r.fail, Fatal: die})
	if err != nil {
		return err
	}
	defer store.Close()
	o, err := orchestrator.New(context.WithoutCancel(ctx), cfg, orchestrator.Options{Store: store, Lines: os.Stderr, Events: r.events, Fail: r.fail, Fenced: r.fenced})
	if err != nil {
		return err
	}
	address := socket(r.runDir, "orchestrator")
	listener, err := seam.UnixNet{}.Listen(address)
	if err != nil {
		return fmt.Errorf("listen for the other roles: %w", err)
	}
	defer os.Remove(address)
	server := grpc.NewServer(grpc.MaxRecvMsgSize(wire.MaxMessage))
	proto.RegisterOrchestratorServer(server, orchestrator.NewServer(o))
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(listener) })
	if metrics != "" {
		group.Go(func() error { return orchestrator.ServeMetrics(gctx, metrics, o) })
	}
	// The loop's end is the role's end: nil where the run is complete or was asked to stop.
	group.Go(func() error {
		defer stopServing(server)
		if err := o.Run(gctx); err != nil {
			return err
		}
		return errDone
	})
	r.ready()
	r.term(o.Term())
	if err := group.Wait(); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// stopServing lets what was said last reach the other roles, but waits for none that does not listen.
func stopServing(server *grpc.Server) {
	late := time.AfterFunc(lastWords, server.Stop)
	defer late.Stop()
	server.GracefulStop()
}

// lastWords is how long a role may take to hear that the run has ended.
const lastWords = 500 * time.Millisecond

// errDone ends the orchestrator's group without being a fault.
var errDone = errors.New("done")

// runwayTokens bounds the tokens planned ahead, and so what loaders hold; the runway is at least two steps.
const (
	runwaySteps  = 8
	runwayTokens = 32 << 20
)

// orchestratorConfig is what the mixture file means to the orchestrator.
func orchestratorConfig(c *config.Config, world int) (orchestrator.Config, error) {
	var out orchestrator.Config
	topology, err := c.Topology(world)
	if err != nil {
		return out, err
	}
	strategy, err := setup.Strategy(c, topology)
	if err != nil {
		return out, err
	}
	identity, err := json.Marshal(c.Identity())
	if err != nil {
		return out, fmt.Errorf("encode identity: %w", err)
	}
	options := strategy.Options()
	out = orchestrator.Config{
		Stream: millrace.Train, Spec: &strategy.Mix, Placing: setup.Placing(c, topology), Ranks: topology.Ranks, Identity: identity, Compare: sources.Compare, Inverse: inverse, By: programVersion(),
		Place: func(sel *planner.Selection) (*millrace.Plan, error) { return place.Plan(sel, topology, options) },
		Cost:  options.Cost, Adaptive: setup.Adaptive(c), Refit: setup.Refit(c),
		Recost: func(cost cost.Cost) func(*planner.Selection) (*millrace.Plan, error) {
			return recosted(topology, options, cost)
		},
		Rules:   facts.Rules{Changed: func(stored []byte) ([]string, error) { return changed(stored, c) }, Classify: config.Classify},
		Shadows: int(c.Reliability.Shadows),
		Runway:  max(2, min(runwaySteps, int(runwayTokens/c.StepTokens()))),
	}
	for i, loaders := range setup.Stripes(c) {
		out.Sources = append(out.Sources, orchestrator.Source{Name: c.Sources[i].Name, Loaders: loaders, Allowed: setup.Allowed(c)})
	}
	return out, nil
}

// recosted places by other coefficients of cost than the mixture file's.
func recosted(topology millrace.Topology, options place.Options, cost cost.Cost) func(*planner.Selection) (*millrace.Plan, error) {
	options.Cost = options.Cost.Refit(cost.Linear, cost.Quadratic)
	return func(sel *planner.Selection) (*millrace.Plan, error) { return place.Plan(sel, topology, options) }
}

// changed names what differs between a stored identity and the mixture file's.
func changed(stored []byte, c *config.Config) ([]string, error) {
	var old identity.Identity
	if err := json.Unmarshal(stored, &old); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read identity: %v", err)
	}
	return identity.Diff(old, c.Identity()), nil
}
