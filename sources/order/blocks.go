package order

import (
	"millrace"
	"millrace/mixing"
)

// Block sizes in uncompressed bytes of records. They decide the order of samples and so belong to every run's identity.
const (
	shuffledBlock = 64 << 20 // shuffle: blocks; the records of a block are permuted together
	plainBlock    = 1 << 20  // shuffle: none; decides only the distance of seek points
)

// Blocks is the order of sources that are read block by block: shards in the epoch's order, their blocks in file
// order, the records of a block permuted. If Plain is set, both permutations are the identity.
type Blocks struct {
	Seed   Seed
	Plain  bool
	Limit  int64 // bytes of a block
	Shards uint32
}

// NewBlocks returns the order of a number of shards.
func NewBlocks(seed Seed, plain bool, shards int) *Blocks {
	b := &Blocks{Seed: seed, Plain: plain, Limit: shuffledBlock, Shards: uint32(shards)}
	if plain {
		b.Limit = plainBlock
	}
	return b
}

// ShardAt returns the manifest index of the shard at a position of the epoch's order.
func (b *Blocks) ShardAt(e millrace.Epoch, position uint32) uint32 {
	if b.Plain {
		return position
	}
	p := mixing.NewPermutation(uint64(b.Shards), b.Seed.shardKey(e))
	return uint32(p.At(uint64(position)))
}

// Permutation returns the order inside a block of n records; ok is false if records keep their file order.
func (b *Blocks) Permutation(at millrace.SeekPoint, n uint64) (p mixing.Permutation, ok bool) {
	if b.Plain {
		return p, false
	}
	return mixing.NewPermutation(n, b.Seed.blockKey(at.Epoch, b.ShardAt(at.Epoch, at.Shard), at.Block)), true
}

// Ends reports whether a position lies after the last epoch.
func (b *Blocks) Ends(at millrace.SeekPoint) bool {
	return b.Seed.Epochs > 0 && uint32(at.Epoch) >= b.Seed.Epochs
}

// AfterBlock returns the start of the next block of the same shard, given the records of the block at a seek point.
func AfterBlock(at millrace.SeekPoint, records uint64) millrace.SeekPoint {
	at.Ordinal += millrace.Ordinal(records)
	at.Record += records
	at.Block++
	return at
}

// AfterShard returns the start of the next shard, given the position after a shard's last block.
func (b *Blocks) AfterShard(at millrace.SeekPoint) millrace.SeekPoint {
	at.Shard, at.Block, at.Record = at.Shard+1, 0, 0
	if at.Shard >= b.Shards {
		at.Epoch, at.Shard, at.EpochStart = at.Epoch+1, 0, at.Ordinal
	}
	return at
}

// Cutter finds the ends of blocks: a block closes before the record that would exceed the limit, and has at least one
// record.
type Cutter struct {
	Limit   int64 // bytes
	raw     int64
	records uint64
}

// Cuts counts a record of raw bytes and reports whether it begins a new block.
func (c *Cutter) Cuts(raw int64) bool {
	if c.records > 0 && c.raw+raw > c.Limit {
		c.raw, c.records = raw, 1
		return true
	}
	c.raw += raw
	c.records++
	return false
}
