// Package millrace holds the words of the system: small validated types that every room shares, and nothing that acts.
//
// # A tour
//
// A run feeds a training from several named sources. Each [Source] is an endless deterministic stream of ordinals 0, 1, 2, …;
// an [Ordinal] stands for one document, whose address is a [SampleID] and of which the planner sees only a [SampleMeta]: its
// lengths. For every optimizer [Step] the orchestrator seals one [Plan]: which [Segment]s of which documents, in which row of
// which microbatch of which rank. The plan fixes every byte that every rank receives; whoever replays it makes the same bytes.
//
// Three numbers keep it exact. A [Term] fences: receivers remember the highest and refuse lower. An [Attempt] counts how often
// a run went back to an earlier step; uniqueness is (attempt, step). A [Slot] names one microbatch of one rank in one attempt;
// its value never changes.
//
// # The rooms
//
//	mixing         what to draw: schedule, apportionment, permutation
//	sources        read: formats, index, order, read-ahead, tokenising
//	orchestrator   decide: planner (select, place), journal, attempts, acknowledgements
//	constructors   build: a plan's tensors, straight into shared frames
//	checkpoint     remember: journal, snapshots and the ledger
//	sidecar        serve: one socket and one memory ring a rank
//	proto          the wire between processes
//	cmd/millrace   the one binary
//
// Imports go one way: these words, then {mixing, sources, constructors, checkpoint}, then {orchestrator, sidecar}, then cmd.
// docs/ARCHITECTURE.md follows one sample and one plan through the rooms.
package millrace
