// Package place decides where the segments of a step go: rank, microbatch, row and column. It seals the plan with its digests.
//
// A placement evens out the predicted cost as the trainer's ranks wait for each other. It never fails what the planner selected, since the
// bins of the selection are a placement themselves. There is no clock, goroutine or floating-point number here: equal selections give equal
// plans on every host.
//
// place is the entry. deal has a group of ranks and compares the two ways to place it: rows keeps the bins of the selection, arrays packs
// 1-D microbatches by cost. sums evens out ranks, phases an encoder beside the backbone, and split cuts documents over ranks. context decides
// which documents one context-parallel rank holds alone. heap is the order of the least loaded.
package place
