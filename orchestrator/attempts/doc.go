// Package attempts decides where the ranks of a run start, when they begin, and how far they have come.
//
// [Ranks] is a state machine without goroutine, clock and store. Messages of ranks and hosts come in ([Ranks.Join],
// [Ranks.Commit], [Ranks.Present] …). [Ranks.Decide] changes nothing: it returns the attempt to open, or answers that
// need no record. [Ranks.Settle] carries out the answers, [Ranks.Open] an attempt whose record is durable.
//
// A rank's start has one way: a join is declared, resolved to a step of this run or refused, and answered when all
// ranks have said where they start. A rank that declares its current position continues without the others.
package attempts
