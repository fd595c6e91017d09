// Package sidecar serves: one Unix socket and one ring of shared memory for each trainer rank of a host.
//
// A [Server] listens on rank-<r>.sock. Who connects there says where it starts ([Start]); [Upstream] answers, once every rank has
// said so, where the run begins ([Begin]). From then on the sealed plans of that attempt are fetched once for all ranks of the host,
// built straight into frames of the rank's ring and pushed as descriptors, as many as there are frames: the frames are the credits.
// The trainer's asking for the batch after a step's last one is what commits the step, and goes up.
//
//	           Upstream.Plan      Fetcher.Fetch       constructors.Build       socket: descriptors
//	orchestrator ────────▶ steps ───────────▶ payload ───────────────▶ frame ────────────────────▶ trainer
//	                  (shared by the host's ranks)     feeder (one a rank)     session (one a rank)
//
// What happens in which order on a connection is decided by [delivery], a state machine without socket, clock or goroutine; session
// is the shell that feeds it events and carries out its actions. docs/protocol.md has the messages, byte for byte.
//
// # Invariants
//
//  1. At most one connection serves a rank; a second one is refused while the first one's process lives.
//  2. A batch is pushed in (step, microbatch) order, each exactly once on a connection.
//  3. Only what was pushed can be committed; commits go up in order and before the rank's Left.
//  4. END is sent only after the last step's commit has gone up.
//  5. When a trainer is gone, its memory is given back before anything else is waited for.
//  6. Nothing a client sends is an offset, a size or a count that is used before it is checked.
package sidecar
