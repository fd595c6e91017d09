package sidecar

import "millrace"

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
