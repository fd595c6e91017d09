// Package feed reads one stripe of a source ahead of need, in ordinal order.
//
// A [Feed] offers the lengths of documents before any plan needs them, and serves their tokens once a plan does. It
// decodes spans: ranges of stripe positions. What its budget has no room for is dropped and decoded again. Nothing
// but the source decides what it delivers.
package feed
