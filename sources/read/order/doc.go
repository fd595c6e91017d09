// Package order maps the ordinals of a source to its records, and back. Everything in it is pure.
//
// [Global] permutes all documents of an epoch, or all pieces of documents, and needs their number in every shard.
// [Blocks] permutes shards, and records within blocks; it suits files that can only be streamed. A [Stripe] is the
// share of the ordinals that one loader reads.
package order
