// Package checkpoint keeps a run's journal of facts, its snapshots of full state, and the ledger of its sealed steps.
//
// All of them are in one Pebble database; docs/bytes-on-disk.md describes its keys and values. A body is opaque bytes
// to this package, a step is a number and a stream is a name. Only the tree of this package imports Pebble.
//
// # Guarantees
//
//  1. Append and Commit return after the fsync. A commit that returned survives a crash at any later moment. A commit
//     that did not return is in the store as a whole or not at all.
//  2. The journal is one sequence without holes. Replay returns the records in order, and stops at the first damaged
//     or missing one.
//  3. The records, ledger entries and plans of one Commit are one atomic batch.
//  4. A step is sealed once. Sealing it again with other content is ErrConflict.
//  5. Truncate drops only records that a snapshot covers.
//  6. The folder's lock is the solo lease: a second process that opens the store waits for Config.LockWait,
//     then gets ErrLocked.
//  7. A failed write or fsync of the log ends the process (Config.Fatal), because the content of the disk is unknown
//     afterwards. A full disk is noticed earlier: Commit returns ErrDiskFull, and works again when there is room.
//
// # Files (each uses only later ones)
//
//	open.go      Open, OpenReadOnly: the folder, its lock, the database, the format page
//	store.go     Store: every call that a caller may make; the only writer
//	commit.go    Commit: the facts that become durable together
//	follow.go    the content of the store and its batches, for copies on other hosts
//	verify.go    checks every value in the store
//	dump.go      prints every value in the store as text or JSON lines
//	journal.go   records: their bytes, replay, truncation, the journal's ends
//	snapshot.go  snapshots
//	ledger.go    entries, plans and index entries of steps
//	db.go        Pebble: reads, scans and synced batches, with its errors and panics classified
//	sink.go      Pebble's log, and the end of the process when the disk fails
//	gate.go      the lock of the folder; admits calls, one writer at a time
//	errors.go    the classes of failure
//	format.go    keys, checksums and the format page
package checkpoint
