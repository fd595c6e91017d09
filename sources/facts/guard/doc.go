// Package guard notices that a shard may no longer be the surveyed file, and then compares its content.
//
// A [Guard] watches one shard, a [Group] the shards of one source. [Seen] remembers the identities under which the
// files were found, so that later runs need not compare contents. The caller supplies the [Evidence] of contents.
package guard
