// Package mix keeps the mixture that is in force, and turns requests for changes of it into journal records.
//
// [Mixture] is a state machine without goroutine, clock and store. A request comes in by [Mixture.Ask].
// [Mixture.Decide] changes nothing: it returns the record of the change, or why the change is refused. [Mixture.Settle]
// answers a refused request, [Mixture.Apply] brings a change into force whose record is durable, and answers who asked
// for it.
package mix
