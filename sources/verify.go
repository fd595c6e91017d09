package sources

import (
	"fmt"

	"millrace"
	"millrace/sources/facts/index"
	"millrace/sources/facts/kept"
)

// Verify is the way in which a source notices that a shard changed since it was first read.
type Verify string

// The ways to verify.
const (
	VerifyTokens Verify = "tokens" // like VerifyFiles, and compare each document with its checksum; the default
	// if inode, size or times of a file changed, compare its content with the kept digests
	VerifyFiles Verify = "files"
	VerifyOff   Verify = "off" // compare the shard's digest only: its size and its first and last MiB
)

// verifier compares the documents of a source with the kept lengths and checksums.
type verifier struct {
	kept     *kept.Store
	verify   Verify
	cure     string // advice about a changed file
	manifest *millrace.Manifest
}

// DocumentCheck compares documents with the lengths and checksums of their first reading. It is not safe for concurrent
// use.
type DocumentCheck struct {
	*verifier
	opened bool
	shard  uint32
	store  kept.Lengths // of shard; nil if there is no store
}

// Compare compares a decoded document with the length and the checksum of its first reading, and fills in its checksum.
// An error ends the feed, because plans were made from another content of the file.
func (c *DocumentCheck) Compare(shard uint32, found *kept.Length, tokens []uint32) error {
	if !c.kept.HasLengths() {
		return nil
	}
	if !c.opened || c.shard != shard {
		c.opened, c.shard, c.store = true, shard, c.kept.Lengths(shard)
	}
	found.Sum, found.Summed = index.Sum(tokens), true
	if c.store == nil || c.verify == VerifyOff {
		return nil
	}
	if was, ok := c.store.Get(found.Record); ok && was != found.Tokens {
		return c.LengthChanged(shard, found.Record, was, found.Tokens)
	}
	switch was, ok := c.store.Sum(found.Record); {
	case !ok:
		c.store.PutSum(found.Record, found.Sum)
	case was != found.Sum && c.verify == VerifyTokens:
		return c.changed(shard, found.Record, "it has other tokens than when it was first read")
	}
	return nil
}

// LengthChanged returns the error of a document that no longer has the length of its first reading. It is nil if the
// source is not verified.
func (c *DocumentCheck) LengthChanged(shard uint32, record uint64, was, is uint32) error {
	if c.verify == VerifyOff {
		return nil
	}
	return c.changed(shard, record, fmt.Sprintf("it had %d tokens when it was first read and has %d", was, is))
}

func (v *verifier) changed(shard uint32, record uint64, what string) error {
	sh := v.manifest.Shards[shard]
	name := v.manifest.SampleName(millrace.SampleID{Shard: shard, Record: record})
	return millrace.Errorf(millrace.ErrMismatch, "document %s of source %s changed: %s (file %s); %s",
		name, v.manifest.Source, what, sh.Path, v.cure)
}
