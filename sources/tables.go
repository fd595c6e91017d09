package sources

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"millrace"
	"millrace/sources/facts/kept"
	"millrace/sources/read/order"
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
		kind:   e.blocksKind(isPlain),
		shards: shards,
		log:    e.log,
		tables: make([]tableState, len(shards)),
	}
	return t
}

// blocksKind names the blob of a block table.
func (e *evidence) blocksKind(isPlain bool) string {
	if isPlain {
		return e.kind(kindBlocks) + "-plain"
	}
	return e.kind(kindBlocks)
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

// pieceOrders holds the orders of pieces of one source that were asked for. It is safe for concurrent use.
type pieceOrders struct {
	mu       sync.Mutex
	byTokens map[uint32]*order.Global
}

// InPieces returns the source in another order: its ordinals are pieces of `tokens` tokens, in a permutation of all
// pieces. A document's last piece has the rest of its tokens. The result shares files and stores with the source, and
// is valid until the source is closed. 0 tokens give the source itself.
//
// The source needs shuffle global and the length of every document: the error wraps millrace.ErrInvalid if it has not.
func (s *Source) InPieces(ctx context.Context, tokens uint32) (*Source, error) {
	if tokens == 0 {
		return s, nil
	}
	s.pieces.mu.Lock()
	defer s.pieces.mu.Unlock()
	global := s.pieces.byTokens[tokens]
	if global == nil {
		var err error
		if global, err = s.countPieces(ctx, tokens); err != nil {
			return nil, err
		}
		s.pieces.byTokens[tokens] = global
	}
	view := *s
	view.global = global
	return &view, nil
}

// InEras returns the source in an order by which each epoch reads the files of its era. The result shares files and
// stores with the source, and is valid until the source is closed. The error wraps millrace.ErrMismatch if the eras are
// those of other files.
func (s *Source) InEras(eras millrace.Eras) (*Source, error) {
	if eras.IsZero() {
		return s, nil
	}
	if eras.Files() != uint64(len(s.manifest.Shards)) {
		return nil, millrace.Errorf(millrace.ErrMismatch, "source %s has %d files, and the state that it goes on from "+
			"names %d: restore the files", s.Name(), len(s.manifest.Shards), eras.Files())
	}
	view := *s
	if view.global != nil {
		view.global = s.global.InEras(eras)
	} else {
		view.blocks = s.blocks.InEras(eras)
	}
	return &view, nil
}

// countPieces makes the order of pieces, several shards at a time.
func (s *Source) countPieces(ctx context.Context, tokens uint32) (*order.Global, error) {
	if s.manifest.Shuffle != millrace.Global {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"shuffle the pieces of long documents: its order is %s (%s), and only `shuffle: global` can do that; "+
				"set long_documents: consecutive", s.manifest.Shuffle, s.manifest.Why)
	}
	shards := make([]order.Pieces, len(s.manifest.Shards))
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i := range shards {
		group.Go(func() (err error) {
			shards[i], err = s.shardPieces(gctx, uint32(i), tokens)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return order.NewGlobalPieces(s.seed(), shards, tokens), nil
}

// shardPieces counts the pieces of one shard. The counts of shards of tokens are kept, because they follow from the
// files alone.
func (s *Source) shardPieces(ctx context.Context, shard, tokens uint32) (order.Pieces, error) {
	sh := &s.manifest.Shards[shard]
	kind := fmt.Sprintf("%s-%d-%d", s.opener.kind(kindPieces), tokens, s.spec.Limits.SampleBytes)
	if s.HoldsTokens() {
		if blob, ok := s.kept.Load(sh.Digest, kind); ok {
			p, err := order.DecodePieces(blob)
			if err == nil && p.Records() == sh.Count {
				return p, nil
			}
			s.log.Warn("piece counts do not fit their file; they are made again", "file", sh.Path, "err", err)
		}
	}
	view := s.Lengths()
	defer view.Close()
	get, err := view.of(ctx, shard)
	if err != nil {
		return order.Pieces{}, err
	}
	counter := order.NewPieceCounter(tokens)
	if runs := view.runs(shard); runs != nil {
		if err := runs.LengthRuns(counter.AddRun); err != nil {
			return order.Pieces{}, fmt.Errorf("%s: %w", sh.Path, err)
		}
		return counter.Pieces(), nil
	}
	otherwise := view.otherwise(shard)
	for r := range sh.Count {
		n, ok := get(r)
		if !ok {
			n, ok = otherwise(r)
		}
		if !ok {
			cure := "run `millrace index MIXTURE --lengths` once, or set long_documents: consecutive"
			if s.HoldsTokens() { // its files alone know the lengths
				cure = "set long_documents: consecutive"
			}
			return order.Pieces{}, millrace.Errorf(millrace.ErrInvalid,
				"shuffle the pieces of long documents: the length of %s is not known; %s", s.SampleName(shard, r), cure)
		}
		if err := counter.Add(n); err != nil {
			return order.Pieces{}, fmt.Errorf("%s: %w", sh.Path, err)
		}
	}
	p := counter.Pieces()
	if !s.HoldsTokens() {
		return p, nil
	}
	return p, s.kept.Save(sh.Digest, kind, p.Encode())
}
