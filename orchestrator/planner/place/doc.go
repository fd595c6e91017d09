// Package place decides the place of each segment of a step: rank, microbatch, row and start. It seals the plan with
// its digests.
//
// A placement evens out the predicted cost for the way in which the trainer's ranks wait for each other. It never fails
// for a selection of the planner, because the bins of the selection are a placement themselves. There is no clock,
// goroutine or floating-point number here: equal selections give equal plans on every host.
//
// The files, each of which uses only those after it: place (the entry, and the choice between placements), sums (even
// ranks), context (documents that one context-parallel rank holds whole), split (documents that are split over ranks),
// arrays (1-D microbatches by cost), waits (the predicted time of a placement), slices (the bins of the parts of a
// split document), rows (the bins of the selection), phases (an encoder beside the backbone), bins (one packing by
// cost), heap (the least loaded first), columns (microbatches of all ranks side by side), group (a group of
// ranks and its pieces), options.
package place
