// Package roster decides which loader reads which stripe, and who follows it as a standby.
//
// It is a state machine without goroutine, clock and store. Events of loaders and hosts come in ([Roster.Connect],
// [Roster.Offered], [Roster.Switched], [Roster.Tick] …). [Roster.Decide] changes nothing: it returns the next
// assignments to journal, or orders that need no record. [Roster.Apply] carries out an assignment that is durable,
// [Roster.Settle] the orders. They go to the [Actions] of the turn, which are carried out after the turn's records are
// durable.
//
// A stripe has an owner in the configuration, a primary that reads it, and a standby that follows it under a higher
// term. When a primary is lost, its standby is promoted under the term that it has already: hosts may use that term
// before the orchestrator has decided.
package roster
