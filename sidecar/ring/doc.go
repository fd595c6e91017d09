// Package ring holds the shared memory that batches are built in and served from: one pool of frames for each trainer connection.
//
// A [Ring] is one memfd, cut into frames of equal size. It is sized once, sealed against growing and shrinking (a trainer that
// truncates it gets EPERM; without the seals the sidecar would die of SIGBUS) and touched once, so that nobody pays for page faults
// later. A [Pool] hands out its frames:
//
//	free ── Acquire ──▶ filling ── the batch is sent ──▶ lent ── Release by the trainer ──▶ free, generation + 1
//
// # Invariants
//
//  1. A frame that is filling or lent is never handed out again.
//  2. A release counts only with the ring, frame and generation of a lent frame: anything else is stale or bogus, changes nothing
//     and is an error for the caller to count.
//  3. Nothing is ever read back from a frame: its trainer can write to it.
//  4. A batch that does not fit gets a new, larger ring; an old ring's memory is given back when its last frame comes home.
//  5. Another connection has other memory: what a forked child of a dead trainer scribbles, nobody reads.
package ring
