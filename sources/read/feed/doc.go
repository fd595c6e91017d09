// Package feed reads one stripe of a source ahead of need, in ordinal order.
//
// A [Feed] offers the lengths of documents before any plan needs them, and serves their tokens once a plan does. It
// reads spans: ranges of stripe positions. It drops tokens that its budget has no room for, and makes them again when
// they are needed. The source alone decides the delivered content.
//
// Feed has the only mutex, and the goroutines. The state below it has no lock: chooser picks the next action; queue,
// memory and cursor hold the spans, their tokens and the positions; blockReader finds blocks and reads their text;
// maker turns spans into tokens. randomRead reads single documents and works without the state.
package feed
