// Package facts holds the state of a run: one decoded value, made from the journal or from a state that a trainer saved.
//
// A saved state has one way into a run: [ReadSaved] decodes it, [Migrate] turns it into a [RunState] of this run or refuses it, and
// the record that opens an attempt carries it into [State]. From the journal the way is [Read]. After that nothing parses a run
// state again; its bytes are made by [RunState.Encode] when they leave the process.
//
// [State] changes by [State.Apply] alone. [Overrides] are the changes that `millrace mix` and the policies made to the mixture file.
package facts
