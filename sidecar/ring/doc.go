// Package ring has the shared memory in which batches are built and served: one pool of frames for each trainer
// connection.
//
// A [Ring] is one memfd, cut into frames of equal size. It is sized once and sealed against growing and shrinking. A
// trainer that truncates it gets EPERM. Without the seals, the sidecar would die of SIGBUS. Every page is touched once,
// so that later accesses cause no page faults. A [Pool] gives out the frames:
//
//	free ── Acquire ──▶ filling ── the batch is sent ──▶ lent ── Release by the trainer ──▶ free, generation + 1
//
// # Invariants
//
//  1. Acquire returns free frames only, never a frame that is filling or lent.
//  2. A release counts only with the ring, frame and generation of a lent frame. Any other release changes nothing and
//     is an error.
//  3. The sidecar never reads a frame, because the trainer can write to it.
//  4. A batch that does not fit gets a new, larger ring. The pool gives an old ring's memory back when the ring's last
//     frame is free.
//  5. Each connection has its own memory, so that a forked child of a dead trainer cannot write into a served batch.
//
// A [Group] has one pool for several ranks that need the same bytes. Its rings are sealed so that trainers can only
// read them, which takes the place of the fifth invariant.
package ring
