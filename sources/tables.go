package sources

import (
	"sync"

	"millrace"
	"millrace/sources/order"
)

// blockTables holds what is known of the shards' blocks: those remembered from earlier scans, and those found by
// feeds now.
type blockTables struct {
	src *Source

	mu     sync.Mutex
	tables []tableState
}

// tableState is one shard's table: growing in block order until a scan reached the shard's end.
type tableState struct {
	table  order.Table
	whole  bool
	loaded bool // looked for in the index store
}

func newBlockTables(s *Source) *blockTables {
	return &blockTables{src: s, tables: make([]tableState, len(s.manifest.Shards))}
}

// kind names the blob of a table: the block limit and the field decide it beside the bytes.
func (t *blockTables) kind() string {
	if t.src.blocks.Plain {
		return t.src.kind(kindBlocks + "-plain")
	}
	return t.src.kind(kindBlocks)
}

// known returns the size of a block if it was found before; end tells that the shard has no such block.
func (t *blockTables) known(shard, block uint32) (size order.BlockSize, ok, end bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.at(shard)
	if int(block) < len(st.table) {
		return st.table[block], true, false
	}
	return order.BlockSize{}, false, st.whole
}

// whole returns a shard's table where it reaches to the shard's end, else nil.
func (t *blockTables) whole(shard uint32) order.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.at(shard); st.whole {
		return st.table
	}
	return nil
}

func (t *blockTables) at(shard uint32) *tableState {
	st := &t.tables[shard]
	if st.loaded {
		return st
	}
	st.loaded = true
	sh := t.src.manifest.Shards[shard]
	blob, ok := t.src.memory.blobs.Load(sh.Digest, t.kind())
	if !ok {
		return st
	}
	table, err := order.DecodeTable(blob)
	if err != nil || sh.Counted && table.Count() != sh.Count {
		t.src.log.Warn("block table does not fit its file; it is made again", "file", sh.Path, "err", err)
		return st
	}
	st.table, st.whole = table, true
	return st
}

// found adds a block that a scan found, if it is the next one.
func (t *blockTables) found(at millrace.SeekPoint, shard uint32, size order.BlockSize) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.at(shard); !st.whole && int(at.Block) == len(st.table) {
		st.table = append(st.table, size)
	}
}

// ended notes that a shard has no block with this number, and keeps the table if all of it is known.
func (t *blockTables) ended(shard, block uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.at(shard)
	if st.whole || int(block) != len(st.table) {
		return nil
	}
	st.whole = true
	return t.src.memory.blobs.Save(t.src.manifest.Shards[shard].Digest, t.kind(), st.table.Encode())
}
