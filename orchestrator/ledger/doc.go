// Package ledger answers which steps held a sample, and what a step held, over all attempts of a run.
//
// It reads the checkpoint store only. For each sealed step the store keeps an [Entry] for ever and the full plan for a
// while; an index entry at each snapshot says where every source stood. Searches bisect the index entries, so their
// cost does not grow with the length of the run.
package ledger
