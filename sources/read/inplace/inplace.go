// Package inplace reads plain ids directly from data files, for the process that builds batches. The loader has
// surveyed the files; a [Reader] accepts exactly the files that the loader names.
package inplace

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/sources"
	"millrace/sources/facts/identity"
	"millrace/sources/store/openfiles"
)

// Reader reads files, and keeps some of them open. It is safe for concurrent use.
type Reader struct {
	fs    sources.FS
	files *openfiles.Pool
	most  int // entries

	mu      sync.Mutex
	entries map[key]*list.Element // in recent
	recent  list.List             // of *entry, the least recently used first
}

// key names one state of a file.
type key struct {
	path string
	id   identity.File
}

type entry struct {
	key
	file *openfiles.File // of a sources.OpenFile
}

// New returns a reader of at most openFiles open files; 0: the default follows from the process's limit of descriptors.
func New(fs sources.FS, openFiles int) *Reader {
	if openFiles <= 0 {
		openFiles = openfiles.Default()
	}
	return &Reader{fs: fs, files: openfiles.New(openFiles), most: openFiles, entries: map[key]*list.Element{}}
}

// Read fills into(k) from byte offsets[k] of a file, for every k. It calls into from several goroutines. After an
// error, the bytes are not the file's: the file at the path has another identity, changed meanwhile, or cannot be read.
func (r *Reader) Read(
	ctx context.Context,
	path string,
	id identity.File,
	offsets []uint64,
	into func(int) []byte,
) error {
	e := r.entry(key{path, id})
	handle, err := e.file.Acquire()
	if err != nil {
		return err
	}
	defer handle.Release()
	file := handle.Opened.(sources.OpenFile)
	if err = readAll(ctx, file, offsets, into); err == nil {
		// The check comes after the reads: bytes that were read before a change are good.
		err = r.check(file, key{path, id}, "changed")
	}
	handle.Judge(err)
	return err
}

// check compares an open file with the named one.
func (r *Reader) check(file sources.OpenFile, k key, what string) error {
	is, err := file.Identity()
	if err == nil && is != k.id {
		err = fmt.Errorf("read %s: the file %s: %s", k.path, what, is.Difference(k.id))
	}
	return err
}

// entry returns the entry of a file, which may not be open.
func (r *Reader) entry(k key) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := r.entries[k]; at != nil {
		r.recent.MoveToBack(at)
		return at.Value.(*entry)
	}
	e := &entry{key: k}
	e.file = r.files.File(func() (io.Closer, error) {
		file, err := r.fs.Open(k.path)
		if err != nil {
			return nil, err
		}
		if err := r.check(file, k, "is another one than the loader has"); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return file, nil
	})
	r.entries[k] = r.recent.PushBack(e)
	if r.recent.Len() > r.most {
		oldest := r.recent.Remove(r.recent.Front()).(*entry)
		delete(r.entries, oldest.key)
		oldest.file.Close() // at the end of its uses; a file that was only read has nothing to lose
	}
	return e
}

// Close closes the files. The caller has ended all reads.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for at := r.recent.Front(); at != nil; at = at.Next() {
		errs = append(errs, at.Value.(*entry).file.Close())
	}
	r.recent.Init()
	clear(r.entries)
	return errors.Join(errs...)
}

// Reads that take longer than slowRead come from a device. Then some of them wait side by side.
const (
	slowRead = 40 * time.Microsecond
	slowTest = 16 // reads
	together = 16
)

func readAll(ctx context.Context, file sources.OpenFile, offsets []uint64, into func(int) []byte) error {
	began := time.Now()
	for k, at := range offsets {
		if k > 0 && k%slowTest == 0 && time.Since(began) > time.Duration(k)*slowRead {
			return readTogether(ctx, file, offsets, k, into)
		}
		if err := sources.ReadFull(file, into(k), int64(at)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// readTogether reads from number first on.
func readTogether(
	ctx context.Context,
	file sources.OpenFile,
	offsets []uint64,
	first int,
	into func(int) []byte,
) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	next.Store(int64(first))
	for range min(together, len(offsets)-first) {
		group.Go(func() error {
			for k := int(next.Add(1)) - 1; k < len(offsets) && ctx.Err() == nil; k = int(next.Add(1)) - 1 {
				if err := sources.ReadFull(file, into(k), int64(offsets[k])); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}
