// Package mixing decides what a run draws: in which order a source is read, in which proportion sources are mixed, and from which source the next segment comes.
//
// Everything here is a pure function or a small value: no clock, goroutine, file or floating-point number, so that equal inputs give equal streams on every host.
// The parts, from configuration to draw:
//
//	Weight       a relative weight, exactly as its decimal literal says
//	Derivation   weights that follow from the sizes of sources
//	Node         groups of sources and of groups; Flatten multiplies them out
//	Schedule     milestones and ramps: (step, tokens placed) -> Proportions
//	Proportions  the mixture in force, in parts of 2^62; Shares leaves out what is exhausted
//	Bounds       the least and the most that a source may have of the mixture, whoever leaves
//	Apportioner  shares -> the source of every next segment, close to the target at every prefix
//	Permutation  ordinal within an epoch -> record, by random access and in constant memory
//	Target       the exact cumulated target, to measure by how much a stream deviates
//
// Sources are addressed by their index; the caller keeps names, and keeps the order of sources independent of maps.
package mixing
