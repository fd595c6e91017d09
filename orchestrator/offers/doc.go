// Package offers merges the offers of all stripes of a source into one sequence in ordinal order. A run and a dry run
// both plan from it.
package offers
