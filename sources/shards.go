package sources

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"millrace/sources/facts/identity"
	"millrace/sources/facts/index"
	"millrace/sources/find"
	"millrace/sources/store/copies"
	"millrace/sources/store/openfiles"
)

// Host has what all sources of a process share: the index directories, the open files, and the open shards that are not
// being read. It is safe for concurrent use.
type Host struct {
	opts   HostOptions
	files  *openfiles.Pool
	copies copies.Reader

	mu      sync.Mutex // also of the shardSets
	indexes map[string]*index.Store
	idle    list.List // of *OpenShard without a reader, the least recently used first
	memory  int64     // of the idle shards
	facts   int64     // bytes of the facts about all sources and files
}

// HostOptions are the means of a process.
type HostOptions struct {
	OpenFiles int      // data files open at once; 0: the default follows from the process's limit of descriptors
	IndexFS   index.FS // files of index directories; default: the operating system's
	// Facts is called with the bytes of memory that the facts about the open sources and their files take, when they
	// change. Calls do not overlap. Default: nothing.
	Facts  func(bytes int64)
	Logger *slog.Logger // default: none
}

// idleMemory bounds the memory of open shards that are not being read. An open shard holds no descriptor.
const idleMemory = 16 << 20

// plainMemory is the assumed memory of an open shard that does not know its own.
const plainMemory = 128 << 10

// NewHost returns the means of a process. The caller closes them after all sources.
func NewHost(opts HostOptions) *Host {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Facts == nil {
		opts.Facts = func(int64) {}
	}
	return &Host{opts: opts, files: openfiles.New(opts.OpenFiles), indexes: make(map[string]*index.Store)}
}

// index returns the store of an index directory, nil without a directory.
func (h *Host) index(dir string) (*index.Store, error) {
	if dir == "" {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if store := h.indexes[dir]; store != nil {
		return store, nil
	}
	store, err := index.Open(dir, index.Options{FS: h.opts.IndexFS, Log: h.opts.Logger})
	if err != nil {
		return nil, err
	}
	h.indexes[dir] = store
	return store, nil
}

// Memory of the facts about sources and files; docs/memory.md has the parts.
const (
	sourceFacts = 32 << 10
	shardFacts  = 72 + 66 // and the path
	fileFacts   = 40      // of each file of a shard
	// of a shard with constants that its source asks for; files of one folder share the values
	constantFacts = 80
)

// factsOf returns the memory of the facts about a source with these files, in bytes.
func factsOf(files []find.File, width int) int64 {
	n := int64(sourceFacts) + int64(len(files))*(shardFacts+int64(width)*fileFacts)
	for i := range files {
		n += int64(len(files[i].Path))
	}
	return n
}

// addFacts notes that sources were opened, or closed if bytes is negative.
func (h *Host) addFacts(bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.facts += bytes
	h.opts.Facts(h.facts)
}

// Close writes and closes the indexes. All sources are closed.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, store := range h.indexes {
		errs = append(errs, store.Close())
	}
	h.indexes = nil
	return errors.Join(errs...)
}

// shardSet opens the shards of a source when they are read and keeps some of them open. Its host's lock guards it.
type shardSet struct {
	host *Host
	open func(ctx context.Context, shard uint32) (*OpenShard, error)
	held map[uint32]*OpenShard
}

// OpenShard is a shard with its file. It stays open while it is acquired; after that the set may close it.
type OpenShard struct {
	Shard
	set    *shardSet
	file   *retryFile
	copy   *copies.Copy // the shard reads this copy of the file; nil: the file itself
	index  uint32       // in the manifest
	refs   int
	idle   *list.Element // in the host's list, or nil
	memory int64
	ready  chan struct{}
	err    error
}

func newShardSet(host *Host, open func(context.Context, uint32) (*OpenShard, error)) *shardSet {
	return &shardSet{host: host, open: open, held: make(map[uint32]*OpenShard)}
}

// acquire returns an open shard; the caller releases it.
func (s *shardSet) acquire(ctx context.Context, shard uint32) (*OpenShard, error) {
	s.host.mu.Lock()
	if o, ok := s.held[shard]; ok {
		o.refs++
		s.host.wake(o)
		s.host.mu.Unlock()
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
	slot := &OpenShard{set: s, index: shard, refs: 1, ready: make(chan struct{})}
	s.held[shard] = slot
	s.host.mu.Unlock()
	opened, err := s.open(ctx, shard)
	if err != nil {
		slot.err = err
		s.host.mu.Lock()
		delete(s.held, shard)
		s.host.mu.Unlock()
		close(slot.ready)
		return nil, err
	}
	slot.Shard, slot.file, slot.copy, slot.memory = opened.Shard, opened.file, opened.copy, memoryOf(opened.Shard)
	if slot.copy != nil {
		slot.memory += slot.copy.Memory()
	}
	close(slot.ready)
	return slot, nil
}

// memoryOf returns the memory of an open shard.
func memoryOf(s Shard) int64 {
	if sized := s.Abilities().Memory; sized != nil {
		return sized.Memory()
	}
	return plainMemory
}

// release ends the reading that acquire began.
func (s *shardSet) release(o *OpenShard) {
	s.host.mu.Lock()
	o.refs--
	var closed []*OpenShard
	if o.refs == 0 && s.held[o.index] == o {
		o.idle = s.host.idle.PushBack(o)
		s.host.memory += o.memory
		closed = s.host.evict()
	}
	s.host.mu.Unlock()
	closeAll(closed)
}

// wake takes a shard out of the idle ones; the lock is held.
func (h *Host) wake(o *OpenShard) {
	if o.idle != nil {
		h.idle.Remove(o.idle)
		h.memory -= o.memory
		o.idle = nil
	}
}

// evict removes idle shards beyond the bound, oldest first; the lock is held. The caller closes them.
func (h *Host) evict() (out []*OpenShard) {
	for h.memory > idleMemory && h.idle.Len() > 1 {
		o := h.idle.Front().Value.(*OpenShard)
		h.wake(o)
		delete(o.set.held, o.index)
		out = append(out, o)
	}
	return out
}

// closeIdle closes every shard. No shard is being read.
func (s *shardSet) closeIdle() {
	s.host.mu.Lock()
	var all []*OpenShard
	for _, o := range s.held {
		s.host.wake(o)
		all = append(all, o)
	}
	s.held = make(map[uint32]*OpenShard)
	s.host.mu.Unlock()
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
	if o.copy != nil {
		o.copy.Close()
	}
	if o.file != nil {
		o.file.held.Close()
	}
}

// Path returns the path of the shard's file.
func (o *OpenShard) Path() string { return o.file.Name() }

// Identity returns the identity of the shard's open file, after a check that it still is the surveyed file. The
// identity is the zero value if the store has none.
func (o *OpenShard) Identity() (id identity.File, err error) {
	err = o.file.use(func(file OpenFile) error {
		id, err = file.Identity()
		return err
	})
	if err == nil && o.file.guard != nil {
		err = o.file.guard.Check(&o.file.opened, id)
		id = o.file.opened.Identity()
	}
	return id, err
}

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
