// Package guard notices that a shard is no longer the file that was surveyed, and lets its content decide.
//
// A [Guard] watches one shard, a [Group] the shards of one source. [Seen] remembers under which identities the files
// were found, so that later runs need not compare contents. The caller supplies the [Evidence] of contents.
package guard
