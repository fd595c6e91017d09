// Package progress holds the planner's state between two steps: the position and the deficit of each source, and the
// segments that wait for a later step. A selection that starts from a state draws the same documents as one that never
// stopped.
//
// A [State] has two forms. [State.Compact] is the text that trainers save, and [Parse] reads it back. A [Delta] is the
// change that one step made, for the journal; a [Differ] computes and applies deltas. [State.Adapt] turns a state into
// one for other sources.
//
// The package has no clock, goroutine, file or floating-point number.
package progress

// PlannerVersion names the algorithms that decide a run's stream. It is part of the state. A change of the selection
// changes it. Version 1 is version 2 without carry, windows and bucketed packing: version 2 continues its states and
// stores. Version 3 packs steps from a pool of waiting segments, and by default reads long documents of tokens in
// shuffled pieces. A run keeps the version that it began with.
const PlannerVersion = 3

const (
	oldestVersion = 1 // the first version whose runs this program continues with equal plans
	unpooled      = 2 // the last version that packs without a pool
)

// IsSupported reports whether this program plans the same steps as that version.
func IsSupported(version uint32) bool { return version >= oldestVersion && version <= PlannerVersion }
