// Package planner selects what every step holds: pure functions of facts, so that equal facts give equal steps on every host.
//
// Selector.Advance draws segments from the sources by the mixture, cuts the stream into steps, and packs each into global_batch_size bins of
// sequence_length. It never sees the topology, so the content of a step never depends on it. Package place decides where a step goes, cost
// what it costs, and strategy joins them.
//
// There is no clock, goroutine, file or floating-point number here. Metadata comes in by the Offers interface, and a missing fact is an
// Outcome, not an error. A State after any step goes on exactly where it was taken.
//
// The files, each using those after it: selector (the loop), skip (steps that are passed over), window and strata (a window becomes steps),
// draw and offers (a window is drawn), walk (a state moves through the events of a window), delta and between (what a step changed), adapt
// (a state for other sources), carried, compact and state (what is remembered), selection, spec.
package planner

// PlannerVersion names the algorithms that decide a run's stream. It is part of the state; whatever changes a selection changes it. Version 1 is
// version 2 without carry, windows and the packings that came with them: its states and stores go on.
const PlannerVersion = 2

// oldestVersion is the first whose runs this program goes on with, planning the same.
const oldestVersion = 1

// Supported tells whether this program plans what that version plans.
func Supported(version uint32) bool { return version >= oldestVersion && version <= PlannerVersion }
