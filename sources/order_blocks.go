package sources

import (
	"encoding/binary"
	"slices"

	"millrace"
	"millrace/mixing"
)

// Block sizes in uncompressed bytes of records. They decide the order of samples and so belong to every run's identity.
const (
	shuffledBlock = 64 << 20 // blocks order: what is permuted together
	plainBlock    = 1 << 20  // records as they stand: only how often a seek point is given
)

// blockOrder is the order of sources that are read block by block: shards in the epoch's order, their blocks as they stand, the
// records of a block permuted. With plain set, both permutations are the identity.
type blockOrder struct {
	order
	plain  bool
	limit  int64 // bytes of a block
	shards uint32
}

func newBlockOrder(o order, plain bool, shards int) *blockOrder {
	b := &blockOrder{order: o, plain: plain, limit: shuffledBlock, shards: uint32(shards)}
	if plain {
		b.limit = plainBlock
	}
	return b
}

// shardAt returns the index in the manifest of the shard at a position of the epoch's order.
func (b *blockOrder) shardAt(e millrace.Epoch, position uint32) uint32 {
	if b.plain {
		return position
	}
	p := mixing.NewPermutation(uint64(b.shards), b.shardKey(e))
	return uint32(p.At(uint64(position)))
}

// permutation returns the order inside a block of n records; ok is false where records stand as they are.
func (b *blockOrder) permutation(at millrace.SeekPoint, n uint64) (p mixing.Permutation, ok bool) {
	if b.plain {
		return p, false
	}
	return mixing.NewPermutation(n, b.blockKey(at.Epoch, b.shardAt(at.Epoch, at.Shard), at.Block)), true
}

// afterBlock returns where the next block starts, if it is in the same shard.
func afterBlock(at millrace.SeekPoint, n uint64) millrace.SeekPoint {
	at.Ordinal += millrace.Ordinal(n)
	at.Record += n
	at.Block++
	return at
}

// afterShard returns where the next shard starts, given where a block behind the last would.
func (b *blockOrder) afterShard(at millrace.SeekPoint) millrace.SeekPoint {
	at.Shard, at.Block, at.Record = at.Shard+1, 0, 0
	if at.Shard >= b.shards {
		at.Epoch, at.Shard, at.EpochStart = at.Epoch+1, 0, at.Ordinal
	}
	return at
}

// cutter tells where blocks end: a block closes before the record that would exceed the limit, and has at least one record.
type cutter struct {
	limit   int64
	raw     int64
	records uint64
}

// cuts tells whether a record of raw bytes begins a new block, and counts it.
func (c *cutter) cuts(raw int64) bool {
	if c.records > 0 && c.raw+raw > c.limit {
		c.raw, c.records = raw, 1
		return true
	}
	c.raw += raw
	c.records++
	return false
}

// blockTable is the records of each block of one shard: what a scan to its end found.
type blockTable []blockSize

type blockSize struct {
	Records uint64
	Raw     uint64 // uncompressed bytes
}

// count returns the records of the shard.
func (t blockTable) count() (n uint64) {
	for _, b := range t {
		n += b.Records
	}
	return n
}

// encode returns the table's bytes for the index store: pairs of varints.
func (t blockTable) encode() []byte {
	var out []byte
	for _, b := range t {
		out = binary.AppendUvarint(out, b.Records)
		out = binary.AppendUvarint(out, b.Raw)
	}
	return out
}

// decodeBlockTable reads what encode wrote.
func decodeBlockTable(in []byte) (blockTable, error) {
	t := blockTable{}
	for len(in) > 0 {
		records, a := binary.Uvarint(in)
		raw, b := binary.Uvarint(in[max(a, 0):])
		if a <= 0 || b <= 0 || records == 0 {
			return nil, millrace.Errorf(millrace.ErrDamaged, "decode block table: entry %d", len(t))
		}
		t = append(t, blockSize{records, raw})
		in = in[a+b:]
	}
	return slices.Clip(t), nil
}
