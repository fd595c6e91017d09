package sources

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// maxOpenShards bounds the file descriptors of one source. Beyond it, shards that are not being read are closed, the
// least recently used ones first.
const maxOpenShards = 128

// shardSet opens the shards of a source when they are read and keeps some of them open.
type shardSet struct {
	open func(ctx context.Context, shard uint32) (*OpenShard, error)

	mu    sync.Mutex
	held  map[uint32]*OpenShard
	clock uint64
}

// OpenShard is a shard with its file. It stays open while it is acquired; after that the set may close it.
type OpenShard struct {
	Shard
	file  *retryFile
	index uint32 // in the manifest
	refs  int
	used  uint64 // clock of the last acquire
	ready chan struct{}
	err   error
}

func newShardSet(open func(context.Context, uint32) (*OpenShard, error)) *shardSet {
	return &shardSet{open: open, held: make(map[uint32]*OpenShard)}
}

// acquire returns an open shard; the caller releases it.
func (s *shardSet) acquire(ctx context.Context, shard uint32) (*OpenShard, error) {
	s.mu.Lock()
	s.clock++
	if o, ok := s.held[shard]; ok {
		o.refs++
		o.used = s.clock
		s.mu.Unlock()
		select {
		case <-o.ready:
		case <-ctx.Done():
			s.release(o)
			return nil, ctx.Err()
		}
		if errors.Is(o.err, context.Canceled) && ctx.Err() == nil {
			return s.acquire(ctx, shard) // the caller that was opening it gave up
		}
		if o.err != nil {
			return nil, o.err
		}
		return o, nil
	}
	slot := &OpenShard{index: shard, refs: 1, used: s.clock, ready: make(chan struct{})}
	s.held[shard] = slot
	evicted := s.evict()
	s.mu.Unlock()
	closeAll(evicted)
	opened, err := s.open(ctx, shard)
	if err != nil {
		slot.err = err
		s.mu.Lock()
		delete(s.held, shard)
		s.mu.Unlock()
		close(slot.ready)
		return nil, err
	}
	slot.Shard, slot.file = opened.Shard, opened.file
	close(slot.ready)
	return slot, nil
}

// release ends the reading that acquire began.
func (s *shardSet) release(o *OpenShard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.refs--
}

// evict removes the shards beyond the bound that are not being read, oldest first. The caller closes them.
func (s *shardSet) evict() (out []*OpenShard) {
	for len(s.held) > maxOpenShards {
		var oldest *OpenShard
		for _, o := range s.held {
			if o.refs == 0 && (oldest == nil || o.used < oldest.used) {
				oldest = o
			}
		}
		if oldest == nil {
			return out
		}
		delete(s.held, oldest.index)
		out = append(out, oldest)
	}
	return out
}

// closeIdle closes every shard. No shard is being read.
func (s *shardSet) closeIdle() {
	s.mu.Lock()
	var all []*OpenShard
	for _, o := range s.held {
		all = append(all, o)
	}
	s.held = make(map[uint32]*OpenShard)
	s.mu.Unlock()
	closeAll(all)
}

func closeAll(shards []*OpenShard) {
	for _, o := range shards {
		o.close()
	}
}

func (o *OpenShard) close() {
	if o.Shard != nil {
		o.Shard.Close()
	}
	if o.file != nil {
		o.file.Close()
	}
}

// Path returns the path of the shard's file.
func (o *OpenShard) Path() string { return o.file.Name() }

// Explain returns the true cause of an error of reading this shard. If the host failed to read the file, the error is
// no damage.
func (o *OpenShard) Explain(err error) error {
	if err == nil || o.file == nil {
		return err
	}
	if cause := o.file.failure(); cause != nil && IsDamage(err) {
		return fmt.Errorf("read shard %s: %w", o.file.Name(), cause)
	}
	return err
}

// HostFailure returns the error of a record whose read failed for good because of the host, not because of the record's
// bytes.
func (o *OpenShard) HostFailure(r *Record) error {
	if r.Err == nil || o.file.failure() == nil {
		return nil
	}
	return o.Explain(r.Err)
}
