// Package ledger finds the steps that held a sample, and the samples of a step, over all attempts of a run.
//
// It reads the checkpoint store only. For each sealed step the store keeps an [Entry] for ever and the full plan for a
// while. An index entry at each snapshot has the position of every source. Searches bisect the index entries, so their
// cost does not grow with the length of the run.
package ledger
