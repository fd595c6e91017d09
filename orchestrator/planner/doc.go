// Package planner decides what every step holds and where it goes: pure functions of facts, so that equal facts give equal plans on every host.
//
// It works in two halves that DESIGN §9.1 keeps apart:
//
//	select  Selector.Advance draws segments from the sources by the mixture, cuts the stream into steps and packs each into
//	        global_batch_size bins of sequence_length. It never sees the topology, so the content of a step never depends on it.
//	place   Place deals a selection to ranks and microbatches so that compute is balanced, and seals the plan with its digests.
//	        It never fails what select accepted: select's own bins are the way out.
//
// There is no clock, goroutine, file or floating-point number here; metadata comes in by the Offers interface and a missing
// fact is an Outcome, not an error. Costs are 64-bit fixed point. A State after any step goes on exactly where it was taken.
//
// The files: selector, window, draw, walk, offers (what a step holds) · cut, pack, bitmap (best-fit-decreasing) · state, carried, compact, delta
// (what is remembered between steps) · place, deal (where it goes), by rows, arrays, sums, phases or split, heap, local (whole on one
// context-parallel rank) · cost, model (what it costs), report (what that came to).
package planner

// PlannerVersion names the algorithms that decide a run's stream. It is part of the state; whatever changes a selection changes it. Version 1 is
// version 2 without carry, windows and the packings that came with them: its states and stores go on.
const PlannerVersion = 2

// oldestVersion is the first whose runs this program goes on with, planning the same.
const oldestVersion = 1

// Supported tells whether this program plans what that version plans.
func Supported(version uint32) bool { return version >= oldestVersion && version <= PlannerVersion }
