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
	Seed  Seed
	Plain bool
	Limit int64 // bytes of a block

	shards uint32 // in the manifest
	eras   []blockEra
}

// blockEra is a run of epochs that read the same files.
type blockEra struct {
	first millrace.Epoch
	slots []millrace.EraFile
}

// NewBlocks returns the order of a number of shards.
func NewBlocks(seed Seed, plain bool, shards int) *Blocks {
	b := &Blocks{Seed: seed, Plain: plain, Limit: shuffledBlock, shards: uint32(shards)}
	if plain {
		b.Limit = plainBlock
	}
	return b
}

// InEras returns the order of the same shards if each epoch reads those of its era. It fits the shards.
func (b *Blocks) InEras(eras millrace.Eras) *Blocks {
	out := *b
	out.eras = nil
	for i, first := range eras.From {
		out.eras = append(out.eras, blockEra{first, eras.List(i)})
	}
	return &out
}

// in returns the era of an epoch, nil if all epochs read all shards.
func (b *Blocks) in(e millrace.Epoch) *blockEra {
	if len(b.eras) == 0 {
		return nil
	}
	last := len(b.eras) - 1
	for last > 0 && e < b.eras[last].first {
		last--
	}
	return &b.eras[last]
}

// Shards returns the number of shards that an epoch reads, with those that were removed.
func (b *Blocks) Shards(e millrace.Epoch) uint32 {
	if r := b.in(e); r != nil {
		return uint32(len(r.slots))
	}
	return b.shards
}

// slotAt returns the number of the shard at a position of the epoch's order among those that the epoch reads.
func (b *Blocks) slotAt(e millrace.Epoch, position uint32) uint32 {
	if b.Plain {
		return position
	}
	p := mixing.NewPermutation(uint64(b.Shards(e)), b.Seed.shardKey(e))
	return uint32(p.At(uint64(position)))
}

// ShardAt returns the shard at a position of the epoch's order: its index in the manifest, or RemovedShard with its
// ordinals.
func (b *Blocks) ShardAt(e millrace.Epoch, position uint32) (shard uint32, removed uint64) {
	slot := b.slotAt(e, position)
	if r := b.in(e); r != nil {
		return r.slots[slot].Shard, r.slots[slot].Ordinals
	}
	return slot, 0
}

// Permutation returns the order inside a block of n records; ok is false if records keep their file order.
func (b *Blocks) Permutation(at millrace.SeekPoint, n uint64) (p mixing.Permutation, ok bool) {
	if b.Plain {
		return p, false
	}
	return mixing.NewPermutation(n, b.Seed.blockKey(at.Epoch, b.slotAt(at.Epoch, at.Shard), at.Block)), true
}

// Ends reports whether a position is after the last epoch.
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
	if at.Shard >= b.Shards(at.Epoch) {
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
