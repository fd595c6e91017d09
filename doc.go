// Package millrace holds the words of the system: small validated types that every package shares. It starts nothing
// and does no input or output.
//
// # A tour
//
// A run feeds a training from several named sources. Each source is an endless deterministic stream of ordinals 0, 1,
// 2, …; an [Ordinal] stands for one document. Its address is a [SampleID], and the planner sees only its lengths, a
// [SampleMeta]. For every optimizer [Step] the orchestrator seals one [Plan]: the [Segment]s of documents, and the
// rank, microbatch and row of each. The plan fixes every byte that every rank receives. A replay of the plan makes the
// same bytes.
//
// Three types keep delivery exact. Receivers remember the highest [Term] and refuse lower ones. An [Attempt] counts how
// often a run went back to an earlier step; a step is unique as (attempt, step). A [Slot] names one microbatch of one
// rank in one attempt; its value never changes.
//
// # The packages
//
//	mixing         choose sources: schedule, apportionment, permutation
//	sources        read: formats, index, order, read-ahead, tokenising
//	orchestrator   decide: planner (select, place), journal, attempts, commits
//	constructors   build: a plan's tensors, straight into shared frames
//	checkpoint     remember: journal, snapshots and the ledger
//	sidecar        serve: one socket and one memory ring a rank
//	proto          the wire between processes
//	cmd/millrace   the one binary
//
// Imports go one way: these words, then {mixing, sources, constructors, checkpoint}, then {orchestrator, sidecar}, then
// cmd. docs/ARCHITECTURE.md follows a sample, a plan, a setting and a state through the packages.
package millrace
