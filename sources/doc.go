// Package sources reads: it turns a named dataset in some file format into a deterministic stream of samples and keeps a bounded
// part of that stream ahead of need.
//
// A [Format] (one sub-package each) opens shards; the index and the length store remember what was once counted or tokenised; the
// order maps ordinals to records; a Feed reads ahead for one stripe of one source and serves payloads by ordinal.
package sources
