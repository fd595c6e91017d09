package cache

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"millrace"
)

// BlockBytes is the size of a block of a remote file. The last block of a file is shorter.
const BlockBytes = 256 << 10

// A file of the cache has a head and the blocks of one part of a remote file. docs/format.md has the fields.
const (
	blocksMagic  = "MRBLOCK1"
	partBlocks   = 256 // blocks of a file of the cache
	partHead     = 4096
	partTable    = 64 // the first byte of the checksums
	mostOpenPart = 64
)

// Blocks keeps blocks of remote files in a directory. Several processes of a host may use it at the same time. It is
// safe for concurrent use.
//
// A block counts only with its checksum, which is written after it. A process may die at any time: a block that is torn
// has the wrong checksum, and is fetched again.
type Blocks struct {
	room room
	log  *slog.Logger

	mu     sync.Mutex
	parts  map[partKey]*list.Element // in recent
	recent list.List                 // of *part, the least recently used first
	resume time.Time                 // until then nothing is written: the limit or the disk has no room
	told   bool
}

type partKey struct {
	key    millrace.Digest
	number int64
}

// part is an open file of the cache. mu guards its use: a part that is closed is not used any more.
type part struct {
	partKey
	path string

	mu   sync.RWMutex
	file File // nil: closed
}

// OpenBlocks opens a directory of blocks. It creates the directory, and refuses one that cannot be written.
func OpenBlocks(c Config) (*Blocks, error) {
	if c.FS == nil {
		c.FS = OSFS()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b := &Blocks{room: room{dir: c.Dir, ext: blocksExt, limit: c.Limit, fs: c.FS, started: time.Now()}, log: c.Log,
		parts: map[partKey]*list.Element{}}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("open the cache of files: %w", err)
	}
	if err := b.room.change(0, func() (int64, error) { return 0, nil }); err != nil && !errors.Is(err, errNoRoom) {
		return nil, fmt.Errorf("open the cache of files %s: %w", c.Dir, err)
	}
	return b, nil
}

// Close closes the files. No block is being read.
func (b *Blocks) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for at := b.recent.Front(); at != nil; at = at.Next() {
		errs = append(errs, at.Value.(*part).close())
	}
	b.recent.Init()
	clear(b.parts)
	return errors.Join(errs...)
}

// Read fills p with a block of the file with this key. It returns false if the cache has no good copy of it.
func (b *Blocks) Read(key millrace.Digest, block int64, p []byte) bool {
	pt := b.part(partKey{key, block / partBlocks}, false)
	if pt == nil {
		return false
	}
	pt.mu.RLock()
	defer pt.mu.RUnlock()
	if pt.file == nil {
		return false
	}
	sum := pt.sum(block)
	if sum == 0 {
		return false
	}
	if n, _ := pt.file.ReadAt(p, placeOf(block)); n == len(p) && blockSum(key, block, p) == sum {
		return true
	}
	if _, err := pt.file.WriteAt(make([]byte, 8), slotOf(block)); err != nil { // it is fetched again each time
		b.log.Warn("a damaged block of the cache cannot be removed", "path", pt.path, "err", err)
	}
	return false
}

// Write keeps a block, if the limit and the disk have room for it.
func (b *Blocks) Write(key millrace.Digest, block int64, p []byte) {
	b.mu.Lock()
	full := time.Now().Before(b.resume)
	b.mu.Unlock()
	if full {
		return
	}
	pt := b.part(partKey{key, block / partBlocks}, true)
	if pt == nil {
		return
	}
	pt.mu.RLock()
	defer pt.mu.RUnlock()
	sum := blockSum(key, block, p)
	if pt.file == nil || pt.sum(block) == sum {
		return
	}
	err := b.room.change(int64(len(p)), func() (int64, error) {
		if _, err := pt.file.WriteAt(p, placeOf(block)); err != nil {
			return 0, err
		}
		_, err := pt.file.WriteAt(binary.LittleEndian.AppendUint64(nil, sum), slotOf(block))
		return int64(len(p)), err
	})
	if err != nil {
		b.pause(err)
	}
}

// pause stops writing for a while.
func (b *Blocks) pause(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resume = time.Now().Add(fullWait)
	if !b.told {
		b.log.Warn("the cache of files keeps no further blocks for now; they are fetched", "dir", b.room.dir, "err",
			cause)
	}
	b.told = true
}

// part returns the open file of a part, nil if there is none or if it cannot be used.
func (b *Blocks) part(k partKey, create bool) *part {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.parts[k]; at != nil {
		b.recent.MoveToBack(at)
		return at.Value.(*part)
	}
	pt := &part{partKey: k, path: filepath.Join(b.room.dir, fmt.Sprintf("%s-%d%s", k.key, k.number, blocksExt))}
	var err error
	if _, err = os.Stat(pt.path); err != nil && !create {
		return nil
	}
	if pt.file, err = b.room.fs.Create(pt.path); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			b.log.Warn("a file of the cache cannot be opened", "path", pt.path, "err", err)
		}
		return nil
	}
	if !pt.file.Lock(false) || !pt.file.IsAt(pt.path) || !pt.begin() { // it is being removed
		pt.file.Close()
		return nil
	}
	_ = os.Chtimes(pt.path, time.Time{}, time.Now()) // a failure only makes it look older
	b.parts[k] = b.recent.PushBack(pt)
	if b.recent.Len() > mostOpenPart {
		oldest := b.recent.Remove(b.recent.Front()).(*part)
		delete(b.parts, oldest.partKey)
		go oldest.close() // at the end of its uses; a file of the cache has nothing to lose
	}
	return pt
}

func (t *part) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	err := t.file.Close()
	t.file = nil
	return err
}

// begin checks the head of a file, or writes it. All processes write the same head, so several may at once. A file with
// another head loses its checksums.
func (t *part) begin() bool {
	head := append([]byte(blocksMagic), t.key[:]...)
	head = binary.LittleEndian.AppendUint64(head, uint64(t.number))
	head = binary.LittleEndian.AppendUint64(head, xxh3.Hash(head))
	is := make([]byte, len(head))
	n, _ := t.file.ReadAt(is, 0)
	if n == len(head) && string(is) == string(head) {
		return true
	}
	fresh := make([]byte, partHead)
	copy(fresh, head)
	if n == 0 { // checksums that another process writes now stay
		fresh = fresh[:len(head)]
	}
	_, err := t.file.WriteAt(fresh, 0)
	return err == nil
}

// sum returns the checksum of a block, 0 if there is none.
func (t *part) sum(block int64) uint64 {
	var b [8]byte
	if n, _ := t.file.ReadAt(b[:], slotOf(block)); n != len(b) {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func slotOf(block int64) int64  { return partTable + 8*(block%partBlocks) }
func placeOf(block int64) int64 { return partHead + BlockBytes*(block%partBlocks) }

// blockSum returns the checksum of a block at its place. It is never 0.
func blockSum(key millrace.Digest, block int64, p []byte) uint64 {
	return xxh3.HashSeed(p, saltOf(key)+uint64(block)) | 1
}
