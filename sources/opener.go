package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"millrace"
	"millrace/internal/activity"
	"millrace/sources/facts/guard"
	"millrace/sources/facts/identity"
	"millrace/sources/store/copies"
	"millrace/sources/store/remedy"
)

// opener opens shards of one source.
type opener struct {
	evidence
	field     Field
	limits    Limits
	constants map[string]Constants // that the source asks for, by the names of shards; nil: none
}

// open opens a file with its kept index, or without one. If the index does not fit, it opens without one: the survey
// finds the shard uncounted and indexes it again. If the file has a seekable copy, it opens the copy.
func (op *opener) open(ctx context.Context, sh millrace.Shard, g *guard.Guard) (*OpenShard, error) {
	if op.copies != nil && !g.Doubts() {
		if o, err := op.openCopy(ctx, sh, g); o != nil || err != nil {
			return o, err
		}
	}
	blob, _, ok := op.loadIndex(sh, kindIndex)
	if !ok || g.Doubts() {
		return op.openWith(ctx, sh, g, nil, nil)
	}
	o, err := op.openWith(ctx, sh, g, nil, blob)
	if err == nil || !IsDamage(err) {
		return o, err
	}
	op.log.Warn("index does not fit its file; it is made again", "file", sh.Path, "err", err)
	return op.openWith(ctx, sh, g, nil, nil)
}

// openWith opens a shard's file, or the copy of it that is not nil, and reads its head. The index may be nil.
func (op *opener) openWith(ctx context.Context, sh millrace.Shard, g *guard.Guard, c *copies.Copy,
	index []byte) (*OpenShard, error) {
	file, err := op.hold(sh, g)
	if err != nil {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
		return nil, err
	}
	o := &OpenShard{file: file, copy: c}
	var from File = file
	if c != nil {
		from = &unpackedFile{Copy: c, packed: file, opener: op, shard: sh.Name}
	}
	what := func() string { return sh.Path }
	open := func() (io.Closer, error) {
		return nil, Fence(millrace.ErrDamaged, what, func() (err error) {
			o.Shard, err = op.constants[sh.Name].Open(ctx, op.format, from, op.field, op.limits, index)
			return err
		})
	}
	if op.format.Traits().Companions != nil { // it opens another file meanwhile
		if _, err = op.files.Open(open); err == nil {
			op.files.Closed()
		}
	} else {
		_, err = open()
	}
	if err != nil {
		err = o.Explain(err)
		o.close()
		return nil, err
	}
	return o, nil
}

// hold returns the file of a shard. It is closed when the process needs its descriptor, and opened again to be read.
func (op *opener) hold(sh millrace.Shard, g *guard.Guard) (*retryFile, error) {
	file := &retryFile{name: sh.Path, size: -1, patience: op.patience, guard: g}
	file.held = op.files.File(func() (io.Closer, error) {
		f, err := op.fs.Open(sh.Path)
		if err == nil && file.size >= 0 && f.Size() != file.size {
			return nil, errors.Join(f.Close(), millrace.Errorf(millrace.ErrMismatch,
				"open shard %s: it had %d bytes and has %d; %s",
				sh.Path, file.size, f.Size(), cureOfChanged))
		}
		return f, err
	})
	var now identity.File
	err := file.use(func(f OpenFile) (err error) {
		if file.size = f.Size(); g != nil {
			now, err = f.Identity()
		}
		return err
	})
	if err == nil {
		err = g.Check(&file.opened, now)
	}
	if err != nil {
		file.held.Close()
		return nil, remedy.Explain(err)
	}
	return file, nil
}

// openAgain opens a shard of the manifest. The shard was there when the source was opened, so openAgain waits for it.
// If its index or its copy was lost meanwhile, openAgain makes it again.
func (op *opener) openAgain(ctx context.Context, sh millrace.Shard, g *guard.Guard) (o *OpenShard, err error) {
	err = op.patience.try(ctx, "opening "+sh.Path, Passing, func() error {
		o, err = op.open(ctx, sh, g)
		return err
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, ctx.Err()
	case err == nil && o.file.Size() != sh.Size:
		o.close()
		return nil, millrace.Errorf(millrace.ErrMismatch,
			"open shard %s: it had %d bytes and has %d; %s",
			sh.Path, sh.Size, o.file.Size(), cureOfChanged)
	case err != nil || !sh.Counted:
		return o, err
	}
	return op.complete(ctx, o, sh, g, func(int64) {})
}

// complete takes an open shard and returns one that has a count, and a copy if the source wants one.
func (op *opener) complete(ctx context.Context, o *OpenShard, sh millrace.Shard, g *guard.Guard,
	progress func(int64)) (*OpenShard, error) {
	if op.needsCopy(o) {
		err := op.makeCopy(ctx, o, sh, g, progress)
		o.close()
		if err != nil {
			return nil, err
		}
		if o, err = op.openCopy(ctx, sh, g); err == nil && o == nil {
			err = fmt.Errorf("open the seekable copy of %s: it was removed meanwhile", sh.Path)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, counted := o.Count(); counted {
		return o, nil
	}
	defer o.close()
	blob, err := op.indexOpen(ctx, o, sh, g, progress)
	if err != nil {
		return nil, err
	}
	if o.copy == nil {
		return op.openWith(ctx, sh, g, nil, blob)
	}
	return op.openCopy(ctx, sh, g)
}

// indexOpen scans an open shard once, and keeps its index.
func (op *opener) indexOpen(ctx context.Context, o *OpenShard, sh millrace.Shard, g *guard.Guard,
	progress func(int64)) (blob []byte, err error) {
	if err := op.canKeep(sh); err != nil {
		return nil, err
	}
	kind := kindCopyIndex
	if o.copy == nil {
		kind, o.file.hash = kindIndex, newContentHash()
	}
	what := func() string { return sh.Path }
	err = Fence(millrace.ErrDamaged, what, func() (err error) {
		blob, err = o.Index(ctx, progress)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", sh.Path, o.Explain(err))
	}
	if blob == nil {
		return nil, nil
	}
	var content []byte
	if o.copy == nil {
		content, err = o.file.content()
	}
	if err == nil {
		err = op.saveIndex(sh, kind, blob, content)
	}
	if err != nil {
		return nil, fmt.Errorf("index %s: %w", sh.Path, err)
	}
	g.NoteIndexed()
	return blob, nil
}

// readsAtRandom reports whether records of a shard can be read at random, once it is completed.
func (op *opener) readsAtRandom(o *OpenShard) bool { return o.Seekable() || op.needsCopy(o) }

// needsCopy reports whether the source wants a copy of a shard that only streams.
func (op *opener) needsCopy(o *OpenShard) bool {
	if op.copies == nil || o.Seekable() {
		return false
	}
	return o.Abilities().Packed != nil
}

// makeCopy writes the copy of an open shard that only streams. If another process has just written it, makeCopy waits
// for that.
func (op *opener) makeCopy(ctx context.Context, o *OpenShard, sh millrace.Shard, g *guard.Guard,
	progress func(int64)) error {
	if err := op.canKeep(sh); err != nil {
		return err
	}
	op.log.Info("a packed file gets a seekable copy", "file", sh.Path, "dir", op.copies.Dir())
	hash := newContentHash()
	o.file.hash = hash
	err := op.copies.Write(ctx, sh.Digest.String(), g.Doubts(), func() (io.ReadCloser, error) {
		return o.Abilities().Packed.Unpack(ctx)
	}, func() { progress(hash.hashed()) })
	if err == nil && hash.hashed() > 0 {
		err = op.keepContent(o, sh)
	}
	switch {
	case err == nil:
		g.NoteIndexed()
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case IsDamage(err) || o.file.failure() != nil:
		return fmt.Errorf("index %s: %w", sh.Path, o.Explain(err))
	}
	return millrace.Errorf(millrace.ErrInvalid, "%s can only be streamed, and its seekable copy in %s cannot be "+
		"written: %w; give index_dir a directory with room for the packed files, or write `seekable_copies: false` "+
		"for blocks order", sh.Path, op.copies.Dir(), err)
}

// canKeep refuses the work on a shard whose result cannot be kept. Each process would do it again at each start.
func (op *opener) canKeep(sh millrace.Shard) error {
	dir := op.kept.ReadOnly()
	if dir == "" {
		return nil
	}
	return millrace.Errorf(millrace.ErrInvalid, "index %s: index_dir %s is read-only and has no index of this file as "+
		"it is now; run `millrace index` on the mixture file with an index_dir that can be written, and use that one",
		sh.Path, dir)
}

// keepContent keeps the digest of the content of a file that was just copied.
func (op *opener) keepContent(o *OpenShard, sh millrace.Shard) error {
	content, err := o.file.content()
	if err != nil || content == nil {
		return err
	}
	return op.kept.Save(sh.Digest, op.kind(kindCopy), content)
}

// openCopy opens the copy of a shard, with its kept index if that fits. It returns nil if there is no copy that can be
// read.
func (op *opener) openCopy(ctx context.Context, sh millrace.Shard, g *guard.Guard) (*OpenShard, error) {
	blob, _, _ := op.loadIndex(sh, kindCopyIndex)
	for {
		c, err := op.copies.Find(sh.Digest.String())
		switch {
		case err != nil && !Passing(err):
			op.log.Warn("a seekable copy cannot be read; it is made again", "file", sh.Path, "err", err)
			return nil, nil
		case c == nil || err != nil:
			return nil, err
		}
		o, err := op.openWith(ctx, sh, g, c, blob)
		if err == nil || blob == nil || !IsDamage(err) {
			return o, err
		}
		op.log.Warn("index does not fit its file; it is made again", "file", sh.Path, "err", err)
		blob = nil
	}
}

// unpackedFile has the unpacked bytes of a packed file at random, by its copy.
type unpackedFile struct {
	*copies.Copy
	packed *retryFile
	opener *opener
	shard  string // its name
	warn   sync.Once
}

var _ Unpacked = (*unpackedFile)(nil)

// Name implements File.
func (f *unpackedFile) Name() string { return f.packed.name }

// IsUnpacked implements Unpacked.
func (f *unpackedFile) IsUnpacked() bool { return true }

// ReadAt implements io.ReaderAt. An error of the host that may pass is waited for. If the copy is gone or damaged, the
// bytes come from the packed file, which is unpacked from its beginning for each read. The next start makes the copy
// again.
func (f *unpackedFile) ReadAt(p []byte, off int64) (n int, err error) {
	reading := f.packed.activity.Begin(activity.Read, f.packed.shard)
	defer func() { reading.End(int64(n)) }()
	passing := func(err error) bool { return Passing(err) && !errors.Is(err, fs.ErrNotExist) }
	err = f.opener.patience.try(context.Background(), "reading "+f.Path(), passing, func() (err error) {
		if n, err = f.Copy.ReadAt(p, off); err != nil && passing(err) {
			reading.Turn(activity.Storage)
		}
		return err
	})
	if err == nil || errors.Is(err, io.EOF) || passing(err) {
		return n, err
	}
	f.warn.Do(func() {
		f.opener.log.Warn("a seekable copy cannot be read; its file is slow until the next start makes it again",
			"file", f.packed.name, "copy", f.Path(), "err", errors.Join(err, f.Remove()))
	})
	return f.stream(p, off)
}

// stream reads unpacked bytes from the packed file.
func (f *unpackedFile) stream(p []byte, off int64) (int, error) {
	op, ctx := f.opener, context.Background()
	shard, err := op.constants[f.shard].Open(ctx, op.format, f.packed, op.field, op.limits, nil)
	if err != nil {
		return 0, err
	}
	defer shard.Close()
	u := shard.Abilities().Packed
	if u == nil {
		return 0, fmt.Errorf("unpack %s: it is not packed any more", f.packed.name)
	}
	r, err := u.Unpack(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, off); err != nil {
		return 0, err
	}
	return io.ReadFull(r, p)
}
