// Package seal computes the digests that seal a step: the content digest, equal under every topology, and the Merkle
// tree over rank × microbatch that lets a constructor verify its own part.
//
// All digests are blake2b-128; integers are little-endian; u32 and u64 are 4 and 8 bytes.
//
// # Content
//
//	content = H(for each segment in (source, ordinal, offset) order: name NUL ordinal:u64 offset:u64 length:u64)
//
// Every holder of the segments can compute this digest, for example from the batches of all ranks.
//
// # Placement
//
//	leaf = H(0x00 step:u64 rank:u32 microbatch:u32 count:u32 and for each assignment in (row, start) order:
//	         source:u32 ordinal:u64 epoch:u32 shard:u32 record:u64 offset:u32 length:u32 flags:u8 row:u32 start:u32
//	         [part:u32 parts:u32 holder:u32] [patches:u32])
//	node = H(0x01 left:16 right:16)
//	root = H(0x02 step:u64 ranks:u32 microbatches:u32 rows:u32 sequence_length:u32 layout NUL top:16)
//
// Leaves are rank-major: leaf rank*microbatches + microbatch. A level pairs neighbours from the left. A last node
// without a neighbour moves up unchanged. top is the only node of the highest level.
//
// A part of a plan has the leaves of some ranks, and a proof: the digests from which, with these leaves, top follows. A
// node is known if the part has a leaf below it. The proof lists the unknown neighbours of known nodes, level by level
// from the leaves up, and from left to right.
//
//	flags   1: the document continues; 2: part, parts and holder follow; 4: patches follow
//	source  index into the run's sources, sorted by name
//	ranks   data-parallel ranks, the only axis along which segments are distributed
//	rows    micro_batch_size
//
// With AVX-512, the leaves and nodes are hashed eight at a time (lanes), to the same digests.
//
// The digest does not cover the stream, attempt, term, element type and the mark of the last step. They do not place a
// segment, and a replay must have the same root.
package seal
