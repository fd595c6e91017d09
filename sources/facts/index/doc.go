// Package index keeps facts about shards in two files of a directory that several processes share, for any number of
// shards and sources.
//
// A blob is named by its shard's digest and a kind. Blobs are records of the log `shards.pack`, which only grows: the
// newest record of a name counts. Each record has checksums of its head and of its payload. A crash or a damaged disk
// costs records, which are made again, and never yields a wrong one. [Lengths] are words in `lengths.pack`, which
// change in place: each of them is valid by itself. A process maps each file once and keeps one descriptor of each.
package index
