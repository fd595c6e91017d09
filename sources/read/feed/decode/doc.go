// Package decode turns stored records into tokens.
//
// A [Decoder] works for one goroutine of a feed. It makes the documents of a [Part], either from a block's [Text] or by
// reading [Entry] after entry. A [Scan] reads a shard block by block. The package has no access to the feed's state or
// its mutex.
package decode
