package cache

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"millrace"
)

// BlockBytes is the size of a block of a remote file. The last block of a file is shorter.
const BlockBytes = 256 << 10

// A file of the cache has a head and the blocks of one part of a remote file. docs/bytes-on-disk.md has the fields.
const (
	blocksMagic  = "MRBLOCK1"
	partBlocks   = 256 // blocks of a file of the cache
	partBytes    = partBlocks * BlockBytes
	partHead     = 4096
	partTable    = 64 // the first byte of the checksums
	mostOpenPart = 256
)

// Blocks keeps blocks of remote files in a directory. Several processes of a host may use it at the same time. It is
// safe for concurrent use.
//
// A block counts only with its checksum, which is written after it. A process may die at any time: a block that is torn
// has the wrong checksum, and is fetched again. A process checks a block when it first reads it.
type Blocks struct {
	room   room
	log    *slog.Logger
	memory sync.Pool // of *[BlockBytes]byte, for blocks of which a reader needs a part

	mu     sync.Mutex
	parts  map[partKey]*list.Element // in recent
	recent list.List                 // of *part, the least recently used first
	resume time.Time                 // no writes until then: the limit or the disk has no room
	told   bool
}

type partKey struct {
	key    millrace.Digest
	number int64
}

// OpenBlocks opens a directory of blocks. It creates the directory, and refuses one that cannot be read. It writes
// nothing to one that can only be read. On a full disk, it keeps no blocks until there is room.
func OpenBlocks(c Config) (*Blocks, error) {
	if c.FS == nil {
		c.FS = OSFS()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	b := &Blocks{room: room{dir: c.Dir, ext: blocksExt, limit: c.Limit, fs: c.FS, started: time.Now()}, log: c.Log,
		parts: map[partKey]*list.Element{}}
	err := b.room.open()
	switch {
	case isFull(err):
		b.pause(err)
	case err != nil && !errors.Is(err, errNoRoom):
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

// ReadAt fills the beginning of p with bytes of the file with this key, from byte off on. It ends at the first block of
// which the cache has no good copy, and returns the number of bytes. size is the size of the file.
func (b *Blocks) ReadAt(key millrace.Digest, p []byte, off, size int64) (n int) {
	p = p[:max(min(int64(len(p)), size-off), 0)]
	for n < len(p) {
		at := off + int64(n)
		pt, _ := b.part(partKey{key, at / partBytes}, false)
		if pt == nil {
			return n
		}
		got := pt.readAt(p[n:], at, size)
		n += got
		if got == 0 || (off+int64(n))%partBytes != 0 {
			return n
		}
	}
	return n
}

// Has reports whether the cache has all blocks of a range. A block that is damaged counts until it was read.
func (b *Blocks) Has(key millrace.Digest, off, n int64) bool {
	for at := off / BlockBytes; at*BlockBytes < off+n; at++ {
		if pt, _ := b.part(partKey{key, at / partBlocks}, false); pt == nil || !pt.has(at) {
			return false
		}
	}
	return true
}

// Write keeps a block, if the limit and the disk have room for it.
func (b *Blocks) Write(key millrace.Digest, block int64, p []byte) {
	b.mu.Lock()
	full := b.room.isFixed || time.Now().Before(b.resume)
	b.mu.Unlock()
	if full {
		return
	}
	pt, err := b.part(partKey{key, block / partBlocks}, true)
	if err == nil && pt != nil {
		err = pt.write(block, p)
	}
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

// forget takes a part out of use. Its file is closed at the end of its uses.
func (b *Blocks) forget(t *part) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.parts[t.partKey]; at != nil && at.Value.(*part) == t {
		b.recent.Remove(at)
		delete(b.parts, t.partKey)
		go t.close() // at the end of its uses; a file of the cache has nothing to lose
	}
}

// part returns the open file of a part, nil if there is none or if another process removes it.
func (b *Blocks) part(k partKey, create bool) (*part, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.parts[k]; at != nil {
		b.recent.MoveToBack(at)
		return at.Value.(*part), nil
	}
	pt := &part{partKey: k, of: b, path: filepath.Join(b.room.dir, fmt.Sprintf("%s-%d%s", k.key, k.number, blocksExt))}
	var err error
	if _, err = os.Stat(pt.path); err != nil && !create {
		return nil, nil
	}
	if b.room.isFixed {
		pt.file, err = b.room.fs.Open(pt.path)
	} else if pt.file, err = b.room.fs.Create(pt.path); errors.Is(err, fs.ErrNotExist) && create {
		if err = os.MkdirAll(b.room.dir, 0o755); err == nil { // the disk was full when the cache was opened
			pt.file, err = b.room.fs.Create(pt.path)
		}
	}
	if err != nil {
		return nil, err
	}
	isHere := pt.file.Lock(false) && pt.file.IsAt(pt.path)
	if isHere {
		err = pt.begin()
	}
	if !isHere || err != nil {
		return nil, errors.Join(err, pt.file.Close())
	}
	_ = os.Chtimes(pt.path, time.Time{}, time.Now()) // a failure only makes it look older
	b.parts[k] = b.recent.PushBack(pt)
	if b.recent.Len() > mostOpenPart {
		oldest := b.recent.Remove(b.recent.Front()).(*part)
		delete(b.parts, oldest.partKey)
		go oldest.close() // at the end of its uses; a file of the cache has nothing to lose
	}
	return pt, nil
}
