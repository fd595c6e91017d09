// Package planner selects the content of every step. It is pure: equal documents, settings and state give equal steps
// on every host.
//
// [Selector.Advance] draws segments from the sources by the mixture, cuts the stream into steps, and packs each into
// global_batch_size bins of sequence_length. It never sees the topology, so the content of a step does not depend on
// it. Package progress holds the state between two steps, and pack fills bins. Package place decides the rank,
// microbatch and row of each segment, and cost predicts its compute. Package strategy joins them.
//
// There is no clock, goroutine, file or floating-point number here. Metadata comes in by the [Offers] interface.
// Missing metadata is an [Outcome], not an error.
//
// The files, each of which uses only those after it: selector (the loop, and steps that are skipped), window (a draft
// becomes steps), strata (bins are divided among steps), draw (a window is drawn), draft (the segments of a window),
// heads (the next document of each source), replay (draws change the state), shares (the mixture in force), offers and
// outcome (the interface to the caller), selection, spec, stage.
package planner
