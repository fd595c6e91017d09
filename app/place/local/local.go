// Package local is the placer of one host: the supervisor of `millrace up` adds and ends the processes. The
// orchestrator, a child of that supervisor, owns the placer.
package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"millrace/app/supervisor"
	"millrace/internal/seam"
	"millrace/orchestrator/placer"
)

const (
	lookEvery = 5 * time.Millisecond // for the supervisor's answer
	patience  = 10 * time.Second     // a supervisor answers within milliseconds
)

// Placer asks the supervisor of a run directory. It sets no limits of memory or processors for the processes: each
// limits itself.
type Placer struct {
	life   *supervisor.Life
	runDir string
	host   string
	clock  seam.Clock
	turn   chan struct{} // held by the one request that is under way
}

var _ placer.Placer = (*Placer)(nil)

// New returns the placer of an orchestrator that its supervisor has started. host names this host.
func New(life *supervisor.Life, runDir, host string) *Placer {
	return &Placer{life: life, runDir: runDir, host: host, clock: seam.System{}, turn: make(chan struct{}, 1)}
}

// Apply implements placer.Placer.
func (p *Placer) Apply(ctx context.Context, desired placer.Desired) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-p.turn }()
	id := rand.Text()
	if err := p.life.ReportPlace(id, desired); err != nil {
		return err
	}
	late := p.clock.After(patience)
	for {
		answer, err := supervisor.ReadPlaced(p.runDir)
		switch {
		case err != nil:
			return err
		case answer.ID == id && answer.Refused != "":
			return errors.New(answer.Refused)
		case answer.ID == id:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("%s: no answer about %v within %v: see whether it is stopping, and try again",
				supervisor.Engine, desired.Roles, patience)
		case <-p.clock.After(lookEvery):
		}
	}
}

// Observe implements placer.Placer.
func (p *Placer) Observe(ctx context.Context) ([]placer.Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	roles, err := supervisor.ReadRoles(p.runDir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", supervisor.Engine, err)
	}
	out := make([]placer.Instance, len(roles))
	for i, r := range roles {
		out[i] = placer.Instance{Role: r.Role, Name: r.Name, Host: p.host, State: stateOf(r.State)}
	}
	return out, nil
}

func stateOf(s supervisor.State) placer.State {
	switch s {
	case supervisor.Running:
		return placer.Running
	case supervisor.Stopping:
		return placer.Ending
	}
	return placer.Pending
}
