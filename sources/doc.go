// Package sources opens named datasets for reading. A [Source] has a manifest, the order of its samples, its records,
// and the known lengths of its documents.
//
// Each [Format] has a package below and opens shards. The packages beside them have one concern each. find resolves
// paths. order maps ordinals to records. index and kept store counts and lengths. guard notices changed files. A
// feed.Feed reads one stripe ahead and serves its tokens.
package sources
