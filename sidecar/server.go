// Package sidecar serves the trainer ranks of a host. Each rank has a Unix socket and a ring of shared memory.
//
// A [Server] listens on rank-<r>.sock. A client declares its start ([Start]). After every rank has declared its start,
// [Upstream] returns the rank's first batch ([Begin]). The server fetches the plans and tokens of that attempt once for
// all ranks of the host. It builds each batch directly in a frame of the rank's ring and pushes the frame's descriptor.
// The number of a rank's frames bounds its pushed batches: the frames are the credits. The trainer commits a step when
// it asks for the batch after the step's last one.
//
//	           Upstream.Plan      Fetcher.Fetch       constructors.Build       socket: descriptors
//	orchestrator ────────▶ steps ───────────▶ payload ───────────────▶ frame ────────────────────▶ trainer
//	                  (shared by the host's ranks)     feeder (one a rank)     session (one a rank)
//
// delivery decides the order of messages on a connection. It is a state machine without socket, clock or goroutine. A
// session gives it events and carries out its actions. docs/protocol.md describes the messages, byte for byte.
//
// # Invariants
//
//  1. At most one connection serves a rank. A second one is refused while the first one's process lives.
//  2. Batches are pushed in (step, microbatch) order, each exactly once on a connection.
//  3. Only a pushed batch can be committed. Commits go upstream in order and before the rank's Left.
//  4. END is sent only after the last step's commit has reached upstream.
//  5. When a trainer is gone, the server gives its memory back before it waits for anything else.
//  6. Every offset, size and count that a client sends is checked before use.
package sidecar

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"

	"millrace/sidecar/ring"
)

// Server serves the trainer ranks of one host.
type Server struct {
	config Config
	claims []*claim
}

// New returns a server that does nothing before Run.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c.withDefaults()}
	for i, r := range c.Ranks {
		s.claims = append(s.claims, newClaim(i, r))
	}
	return s, nil
}

// Run serves until ctx ends, and then removes its sockets. If the cause of ctx's end is a *RunError, every trainer
// receives it. Run returns an error if it cannot make the sockets. If this process gets no memory, clients learn that
// another sidecar comes, and the error wraps ring.ErrMemory.
func (s *Server) Run(ctx context.Context) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	var sockets []*socket
	defer func() {
		for _, l := range sockets {
			_ = l.remove()
		}
	}()
	for _, rank := range s.config.Ranks {
		l, err := listen(filepath.Join(s.config.Dir, "rank-"+strconv.Itoa(int(rank))+".sock"), s.config.socketMode())
		if err != nil {
			return err
		}
		sockets = append(sockets, l)
	}
	attempts := newAttempts(ctx, s.config)
	door := &door{config: s.config, claims: s.claims, attempts: attempts, giveUp: give}
	var g errgroup.Group
	for i, l := range sockets {
		g.Go(func() error { door.open(ctx, s.claims[i], l); return nil })
	}
	g.Go(func() error {
		<-ctx.Done()
		for _, l := range sockets {
			_ = l.remove()
		}
		return nil
	})
	if s.config.Ready != nil {
		s.config.Ready()
	}
	_ = g.Wait()
	attempts.close()
	if cause := context.Cause(ctx); errors.Is(cause, ring.ErrMemory) {
		return cause
	}
	return nil
}
