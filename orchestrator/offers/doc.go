// Package offers merges what loaders report of a source's stripes into one sequence of facts in ordinal order: what a planner reads,
// in a run as in a dry run.
package offers
