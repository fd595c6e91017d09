// Package kept remembers facts about the shards of a source between runs: blobs, and lengths of records.
//
// It uses package index, which stores files in a directory. A source without a directory keeps blobs in memory and no
// lengths.
package kept
