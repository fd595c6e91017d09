// Package checkpoint remembers: the journal of facts, the snapshots of full state, and the ledger that says what every step held.
//
// All of it lies in one Pebble database, whose key layout is written down in docs/format.md. The package is the only one that knows Pebble, and it knows
// nothing else: a body is opaque bytes, a step is a number, a stream is a name. Facts go in, facts come out, nothing is interpreted.
//
// # What a caller may rely on
//
//  1. Append and Commit return after the fsync. What they acknowledged survives a crash at any later moment; what they did not is there whole or not at all.
//  2. The journal is one sequence without holes. Replay hands it out in order and stops at the first thing that is not as it was written.
//  3. Records, ledger entries and plans of one Commit are one atomic batch.
//  4. A step is sealed once: writing it again with another digest is ErrConflict.
//  5. Truncate drops only what a snapshot covers.
//  6. One process at a time: the folder's lock is the solo lease. A second opener gets ErrLocked.
//  7. A failed write or fsync of the log ends the process (Config.Fatal), because after a failed fsync nobody knows what is on the disk. A full disk is
//     noticed before that: Commit returns ErrDiskFull, and works again once there is room.
//
// # Where things are
//
//	format.go    keys and values, the codecs of docs/format.md
//	store.go     Open, OpenReadOnly, Close
//	commit.go    Commit, Append
//	journal.go   Replay, Truncate
//	snapshot.go  SaveSnapshot, NewestSnapshot, SnapshotBefore, DropSnapshots
//	ledger.go    Entry, EntryBefore, Plan, Ledger, DropPlans
//	index entry.go  IndexEntry, IndexEntryBefore
//	upkeep.go    Compact, Room
//	verify.go    Verify: walks everything and reports
//	dump.go      Dump: prints everything, as text or JSON lines
//	disk.go      the disk beneath, and what happens when it is full
//	errors.go    the classes of failure, and what happens when the disk breaks
//	lock.go      who may use the store: one process, until Close
package checkpoint
