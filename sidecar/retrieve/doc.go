// Package retrieve decides how a sidecar gets the rows of a step from loaders: whom it asks, when it asks the standby
// too, when it replaces a loader by its standby, and when it has a row masked.
//
// A [Portion] is the rows that one stripe of a source gives to a step. It is a state machine without clock, goroutine,
// socket and context: [Portion.On] takes an event and appends the actions that follow. The table in table.go has the
// rule of each state and event. A loop outside carries the actions out in their order, and reports what came of them as
// further events. Time comes in as a value of the events.
package retrieve
