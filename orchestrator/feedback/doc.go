// Package feedback turns trainers' reports into decisions: weights of sources from their losses, and coefficients of
// cost from the times of microbatches.
//
// Reports may be lost, repeated or late, and they are floating-point numbers. No replay needs them. A decision is
// rounded to integers and journaled before it takes effect, together with a summary of the policy's memory. The size of
// the summary depends only on the number of sources. A replay reads the journal.
//
// The files: policy (the common part of both policies, and their summary), odm and ado (the policies), calibration
// (costs).
package feedback
