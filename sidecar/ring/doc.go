// Package ring has the shared memory in which batches are built and served: one pool of frames for each trainer
// connection.
//
// A [Ring] is one memfd, cut into frames of equal size. It is sized once and sealed against growing and shrinking: a
// trainer that truncates it gets EPERM. Without the seals the sidecar would die of SIGBUS. Every page is touched once,
// so that no page faults follow. A [Pool] hands out the frames:
//
//	free ── Acquire ──▶ filling ── the batch is sent ──▶ lent ── Release by the trainer ──▶ free, generation + 1
//
// # Invariants
//
// 1. A frame that is filling or lent is never handed out again. 2. A release counts only with the ring, frame and
// generation of a lent frame. Any other release changes nothing and is an
//
//	error.
//
// 3. A frame is never read back, because its trainer can write to it. 4. A batch that does not fit gets a new, larger
// ring. An old ring's memory is given back when its last frame is free. 5. Another connection has other memory, so that
// a forked child of a dead trainer cannot write into a served batch.
package ring
