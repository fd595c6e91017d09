// Package seal computes the digests that seal a step: the content digest, equal under every topology, and the Merkle tree over
// rank × microbatch that lets a constructor verify its own part.
//
// All digests are blake2b-128; integers are little-endian; u32 and u64 are 4 and 8 bytes.
//
// # Content
//
//	content = H(for each segment in (source, ordinal, offset) order: name NUL ordinal:u64 offset:u64 length:u64)
//
// Anyone who has the segments can compute it again, from all ranks' batches for instance.
//
// # Placement
//
//	leaf = H(0x00 step:u64 rank:u32 microbatch:u32 count:u32 and for each assignment in (row, start) order:
//	         source:u32 ordinal:u64 epoch:u32 shard:u32 record:u64 offset:u32 length:u32 flags:u8 row:u32 start:u32
//	         [part:u32 parts:u32 holder:u32] [patches:u32])
//	node = H(0x01 left:16 right:16)
//	root = H(0x02 step:u64 ranks:u32 microbatches:u32 rows:u32 sequence_length:u32 layout NUL top:16)
//
// Leaves stand rank-major: leaf rank*microbatches + microbatch. A level pairs neighbours from the left; a last one without a
// neighbour moves up as it is. Of the flags, 1 is that the document goes on, 2 that part, parts and holder follow, 4 that patches follow. top is the only node of the highest level. source indexes the run's sources sorted by name; ranks
// are data-parallel ranks, the only axis along which segments are dealt; rows is micro_batch_size. Stream, attempt, term, element
// type and whether the step is the last are not in it: they do not say where a segment goes, and a replay must meet the same root.
package seal
