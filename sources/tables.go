package sources

import (
	"log/slog"
	"sync"

	"millrace"
	"millrace/sources/kept"
	"millrace/sources/order"
)

// blockTables holds the block sizes of a source's shards, from earlier scans and from the feeds of this process. It is
// safe for concurrent use.
type blockTables struct {
	kept   *kept.Store
	kind   string // names the blob of a table; it depends on the block limit
	shards []millrace.Shard
	log    *slog.Logger

	mu     sync.Mutex
	tables []tableState
}

// tableState is one shard's table. It grows in block order until a scan reaches the shard's end.
type tableState struct {
	table  order.Table
	whole  bool
	loaded bool // the kept table was looked up
}

func newBlockTables(e *evidence, isPlain bool, shards []millrace.Shard) *blockTables {
	t := &blockTables{
		kept:   e.kept,
		kind:   e.kind(kindBlocks),
		shards: shards,
		log:    e.log,
		tables: make([]tableState, len(shards)),
	}
	if isPlain {
		t.kind += "-plain"
	}
	return t
}

// known returns the size of a block if it was found before. end means that the shard has no such block.
func (t *blockTables) known(shard, block uint32) (size order.BlockSize, ok, end bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.at(shard)
	if int(block) < len(st.table) {
		return st.table[block], true, false
	}
	return order.BlockSize{}, false, st.whole
}

// whole returns a shard's table if it reaches the shard's end, else nil.
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
	sh := t.shards[shard]
	blob, ok := t.kept.Load(sh.Digest, t.kind)
	if !ok {
		return st
	}
	table, err := order.DecodeTable(blob)
	if err != nil || sh.Counted && table.Count() != sh.Count {
		t.log.Warn("block table does not fit its file; it is made again", "file", sh.Path, "err", err)
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
	return t.kept.Save(t.shards[shard].Digest, t.kind, st.table.Encode())
}
