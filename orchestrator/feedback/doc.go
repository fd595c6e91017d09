// Package feedback makes decisions of what trainers report: weights of sources from their losses, and coefficients of cost from the times of microbatches.
//
// Reports may be lost, come twice or late, and be floating-point numbers: nothing here is needed again to get the same bytes. What comes out is rounded to integers
// and journaled before it has effect, with a summary of a policy's memory of a size that depends on the number of sources alone; whoever replays takes the journal.
//
// The files: policy (what both policies share, summary) · odm, ado (the policies) · fit (costs).
package feedback
