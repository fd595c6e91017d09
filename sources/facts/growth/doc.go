// Package growth decides which files each epoch of a source reads after files came or went.
//
// A [Listing] is the list of a source's files as one opening of the source found it. Each opening keeps its listing
// beside the indexes, so a later run can compare. A [Change] leads from one listing to another at the place from which
// a run continues. It is pure.
package growth
