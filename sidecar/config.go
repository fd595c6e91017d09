package sidecar

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"millrace"
	"millrace/internal/activity"
	"millrace/sidecar/gauge"
)

// Config describes a server.
type Config struct {
	Dir      string          // directory of the sockets rank-<r>.sock
	Ranks    []millrace.Rank // of the world, that this host serves; consecutive
	Limited  string          // the name of the stream if it is for some of the run's ranks alone
	IsSpread bool            // other hosts serve further ranks of the world
	Upstream Upstream
	Fetcher  Fetcher
	Frames   uint32       // frames of a ring; 0: 3 for frames of 1 MiB or more, else 8
	Ahead    int          // steps fetched before they are needed; 0: 2
	Reserve  int64        // bytes of tokens; within them, more steps are fetched once those are here
	RingSize int64        // limit of one rank's ring in bytes; 0: no limit
	Shared   Shared       // axes whose ranks map one copy of their batches
	UIDs     []uint32     // users whose processes may connect; empty: the user of this process
	Ready    func()       // called once when every socket accepts; may be nil
	Observe  func(Event)  // called for every event, from many goroutines; may be nil
	Watch    Watcher      // of the trainers' GPUs; may be nil
	Version  string       // of the program, for messages; may be empty
	Log      *slog.Logger // nil: slog.Default()
	// of this process and of its ranks; nil: no measurements
	Meter *activity.Meter
	Gauge *gauge.Ranks
}

const defaultAhead = 2

// Shared names the axes along which the ranks of a host that need the same bytes map one copy, which they can only
// read.
type Shared struct {
	TP bool
	PP bool
}

// group returns the first rank of the world whose batches have the bytes of a rank's batches: its group's number.
func (s Shared) group(t millrace.Topology, rank millrace.Rank) millrace.Rank {
	at := t.Coordinates(rank)
	if s.TP {
		at.TP = 0
	}
	if s.PP {
		at.PP = 0
	}
	return t.Rank(at)
}

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

// socketMode returns the mode of the ranks' sockets. If users besides this one are listed, the file lets every user
// connect, and the sidecar refuses those that are not listed.
func (c Config) socketMode() os.FileMode {
	if len(c.UIDs) == 1 && c.UIDs[0] == uint32(os.Geteuid()) {
		return 0o600
	}
	return 0o666
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

// Watcher follows the connected trainers, to watch their GPUs. Its calls return at once.
type Watcher interface {
	// Arrived reports that a trainer has the claim of a rank. number is the rank's among those of this host.
	Arrived(rank millrace.Rank, number int, at Seat)
	// Waited reports the time that the trainer has waited for batches since it made its loader.
	Waited(rank millrace.Rank, total time.Duration)
	// Left reports that the trainer is gone.
	Left(rank millrace.Rank)
}

// Seat is the place of a trainer among the GPUs of its host, as its client knows it.
type Seat struct {
	Visible   *string `json:"visible"`    // CUDA_VISIBLE_DEVICES; nil: unset
	LocalRank *int    `json:"local_rank"` // LOCAL_RANK; nil: unset
	Device    *int    `json:"device"`     // the current device among the visible ones; nil: CUDA is not in use yet
}

// EventKind is the name of an event at a rank's socket, as the event log has it.
type EventKind string

// The kinds of events. Filling, Pushed and Released follow one frame; the others follow one connection.
const (
	Joined    EventKind = "joined"    // a trainer declared its start
	Began     EventKind = "began"     // every rank has declared its start; Slot is this rank's first batch
	Filling   EventKind = "filling"   // a frame is being built for Slot
	Pushed    EventKind = "pushed"    // the frame's descriptor is about to be sent
	Released  EventKind = "released"  // the trainer gave a frame back
	Stale     EventKind = "stale"     // a release named no lent frame and was ignored
	Committed EventKind = "committed" // upstream has noted the trainer's commit of Slot.Step
	Saved     EventKind = "saved"     // the trainer's checkpoint of Slot.Step is durable
	Ended     EventKind = "ended"     // the rank has consumed the run
	Failed    EventKind = "failed"    // the connection ends with ERROR for Reason
	Leaving   EventKind = "leaving"   // this sidecar has to leave and is about to send LEAVING
	Parted    EventKind = "parted"    // this sidecar has sent LEAVING
	Gone      EventKind = "gone"      // the trainer left; its memory is given back
	Refused   EventKind = "refused"   // a client was refused for Reason
)

// Event is one event at a rank's socket. The code that causes it waits until the observer returns. The event log is
// therefore complete, and a failpoint can stop the sidecar at the event.
type Event struct {
	Kind       EventKind
	Slot       millrace.Slot // fields that do not apply are 0; Rank always applies
	Generation uint64        // of the frame
	Pid        int           // of the trainer
	Reason     string
}
