// Package facts holds the state of a run: one decoded value, made from the journal or from a state that a trainer
// saved.
//
// A saved state has one way into a run. [ReadSaved] decodes it. [Migrate] turns it into a [RunState] of this run or
// refuses it. The record that opens an attempt carries it into [State]. [Read] makes the same value from the journal.
// No other code parses a run state; [RunState.Encode] makes its bytes when it leaves the process.
//
// [State] changes by [State.Apply] alone. [Overrides] are the changes that `millrace mix` and the policies made to the
// mixture.
package facts
