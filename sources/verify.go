package sources

import (
	"fmt"

	"millrace"
	"millrace/sources/index"
)

// Verify says how a source notices that a shard changed since it was first read.
type Verify string

// The ways to verify.
const (
	VerifyTokens Verify = "tokens" // as VerifyFiles, and each document is compared with its checksum; the default
	VerifyFiles  Verify = "files"  // a file whose inode, size or times changed is compared with what is known of it
	VerifyOff    Verify = "off"    // a shard is known by its digest alone: its size and its first and last MiB
)

// DocumentCheck compares documents with what is remembered of their first reading. It is not safe for concurrent use.
type DocumentCheck struct {
	src    *Source
	opened bool
	shard  uint32
	store  lengthStore // of shard; nil: nothing is remembered
}

// DocumentCheck returns a check of the source's documents.
func (s *Source) DocumentCheck() DocumentCheck { return DocumentCheck{src: s} }

// Compare compares a document that was just decoded with the length and the checksum of its first reading, and fills in
// its checksum. The error ends the feed: the file is not the one that plans were made of.
func (c *DocumentCheck) Compare(shard uint32, found *FoundLength, tokens []uint32) error {
	s := c.src
	if s.memory.lengths == nil {
		return nil
	}
	if !c.opened || c.shard != shard {
		c.opened, c.shard, c.store = true, shard, s.lengthsOf(shard)
	}
	found.Sum, found.Summed = index.Sum(tokens), true
	if c.store == nil || s.spec.Verify == VerifyOff {
		return nil
	}
	if was, ok := c.store.Get(found.Record); ok && was != found.Tokens {
		return s.LengthChanged(shard, found.Record, was, found.Tokens)
	}
	switch was, ok := c.store.Sum(found.Record); {
	case !ok:
		c.store.PutSum(found.Record, found.Sum)
	case was != found.Sum && s.spec.Verify == VerifyTokens:
		return s.documentChanged(shard, found.Record, "it has other tokens than when it was first read")
	}
	return nil
}

// LengthChanged returns the error of a document that no longer has the length of its first reading, nil if the source
// is not verified.
func (s *Source) LengthChanged(shard uint32, record uint64, was, is uint32) error {
	if s.spec.Verify == VerifyOff {
		return nil
	}
	return s.documentChanged(shard, record, fmt.Sprintf("it had %d tokens when it was first read and has %d", was, is))
}

func (s *Source) documentChanged(shard uint32, record uint64, what string) error {
	return millrace.Errorf(millrace.ErrMismatch, "document %s of source %s changed: %s (file %s); %s",
		s.SampleName(shard, record), s.spec.Name, what, s.manifest.Shards[shard].Path, s.changedCure())
}
