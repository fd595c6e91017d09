package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sidecar/ring"
)

// Config is what a sidecar is made of.
type Config struct {
	Dir      string          // where the sockets stand: rank-<r>.sock, r from 0 to len(Ranks)-1
	Ranks    []millrace.Rank // the rank of the world behind each socket
	Upstream Upstream
	Fetcher  Fetcher
	Frames   uint32       // frames of a ring; 0: 3 from 1 MiB up, else 8
	Ahead    int          // steps fetched before they are needed; 0: 2
	RingSize int64        // most bytes of one rank's ring; 0: no bound
	UIDs     []uint32     // users whose processes may connect; empty: our own
	Ready    func()       // called once when every socket accepts; may be nil
	Observe  func(Event)  // called for every event, from many goroutines; may be nil
	Log      *slog.Logger // nil: slog.Default()
}

const defaultAhead = 2

func (c Config) withDefaults() Config {
	if c.Ahead == 0 {
		c.Ahead = defaultAhead
	}
	if len(c.UIDs) == 0 {
		c.UIDs = []uint32{uint32(os.Geteuid())}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case len(c.Ranks) == 0:
		return errors.New("make sidecar: no ranks to serve")
	case c.Upstream == nil || c.Fetcher == nil:
		return errors.New("make sidecar: it needs an upstream and a fetcher")
	case c.Frames == 1:
		return errors.New("make sidecar: one frame is not enough, the trainer holds one while the next is built")
	}
	return nil
}

// Server serves the trainer ranks of one host.
type Server struct {
	config Config
	claims []*claim

	mu       sync.Mutex
	ctx      context.Context // of Run: what an attempt's steps live in
	give     context.CancelCauseFunc
	attempts map[millrace.Attempt]*steps
}

// New returns a server that does nothing before Run.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	s := &Server{config: c.withDefaults(), attempts: map[millrace.Attempt]*steps{}}
	for i, r := range c.Ranks {
		s.claims = append(s.claims, newClaim(i, r))
	}
	return s, nil
}

// Run serves until ctx ends, and then takes its sockets away. Where ctx ends with a *RunError as its cause, every trainer is told.
// It returns an error only where the sockets cannot be made, or where this process cannot serve: its clients are told that another comes.
func (s *Server) Run(ctx context.Context) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	var sockets []*socket
	defer func() {
		for _, l := range sockets {
			_ = l.remove()
		}
	}()
	for i := range s.claims {
		l, err := listen(filepath.Join(s.config.Dir, "rank-"+strconv.Itoa(i)+".sock"))
		if err != nil {
			return err
		}
		sockets = append(sockets, l)
	}
	s.mu.Lock()
	s.ctx, s.give = ctx, give
	s.mu.Unlock()
	var g errgroup.Group
	for i, l := range sockets {
		g.Go(func() error { s.accept(ctx, s.claims[i], l); return nil })
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
	s.closeAttempts()
	if cause := context.Cause(ctx); errors.Is(cause, ring.ErrMemory) {
		return cause
	}
	return nil
}

// broken has the server leave, for another process to take its place.
func (s *Server) broken(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(err)
}

// EventKind is what happened to a rank; the words of the sidecar's event record.
type EventKind string

// The kinds of events. Filling, Pushed, Released and Freed follow one frame; the others one connection.
const (
	Joined    EventKind = "joined"    // a trainer said where it starts
	Began     EventKind = "began"     // every rank has; Slot is where this one begins
	Filling   EventKind = "filling"   // a frame is being built for Slot
	Pushed    EventKind = "pushed"    // its descriptor is about to be sent
	Released  EventKind = "released"  // the trainer gave a frame back
	Stale     EventKind = "stale"     // a release that named no lent frame; ignored
	Committed EventKind = "committed" // the trainer has taken all of Slot.Step, and upstream knows
	Saved     EventKind = "saved"     // the trainer's checkpoint of Slot.Step is durable
	Ended     EventKind = "ended"     // the rank has everything
	Failed    EventKind = "failed"    // the trainer was told Reason
	Leaving   EventKind = "leaving"   // this sidecar was asked to leave and is about to say so
	Parted    EventKind = "parted"    // it has said so
	Gone      EventKind = "gone"      // the trainer left; its memory is given back
	Refused   EventKind = "refused"   // a client was turned away for Reason
)

// Event is something that happened at a rank's socket. Observers are called where it happens and hold it up while they run, so
// that an event record is complete and a failpoint has its place.
type Event struct {
	Kind       EventKind
	Slot       millrace.Slot // fields that do not apply are 0; Rank always applies
	Generation uint64        // of the frame
	Pid        int           // of the trainer
	Reason     string
}
