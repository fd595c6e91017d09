// Package cache keeps the documents of text shards as tokens on a local disk, so that no shard is tokenised twice.
//
// A [Store] is a directory with one file, an entry, for each shard and transform. [Store.Wrap] puts an entry in front
// of a shard: its records then come as finished documents, in any order, with the offsets and the reasons of bad
// records of the shard itself. A missing or damaged entry is no error, because the shard has the same documents.
// [Store.Fill] writes the entry of one shard, and [Filler] fills those that a process reads. docs/bytes-on-disk.md has
// the bytes of an entry.
package cache
