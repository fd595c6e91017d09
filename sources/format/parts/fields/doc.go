// Package fields looks up the values of records by dotted paths.
//
// A format whose reader decodes whole records into maps passes each map to a [Reader]. A format with a faster way to
// single fields has the same rules: at each object, a key that equals all the rest of a path comes before the path's
// next part.
package fields
