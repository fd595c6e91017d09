// Package mixing decides the order in which a source is read, the proportions in which sources are mixed, and the
// source of each next segment.
//
// It has pure functions and small values only: no clock, goroutine, file or floating-point number. Equal inputs give
// equal streams on every host. The parts, from configuration to draw:
//
//	Weight       a relative weight, exactly as its decimal literal says
//	Derivation   weights that follow from the sizes of sources
//	Node         groups of sources and of groups; Flatten multiplies them out
//	Schedule     milestones and ramps: (step, tokens placed) -> Proportions
//	Proportions  the mixture in force, in parts of 2^62; Shares leaves out exhausted sources
//	Bounds       the least and the most of the mixture that a source may have
//	Apportioner  shares -> the source of every next segment, close to the target at every prefix
//	Permutation  ordinal within an epoch -> record, by random access and in constant memory
//	Target       the exact cumulated target, to measure the deviation of a stream
//
// Sources are addressed by their index. The caller keeps their names, in an order that does not come from a map.
package mixing
