package sources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/zeebo/xxh3"
	"golang.org/x/crypto/blake2b"

	"millrace"
	"millrace/sources/facts/guard"
	"millrace/sources/facts/identity"
	"millrace/sources/facts/kept"
	"millrace/sources/find"
	"millrace/sources/store/copies"
	"millrace/sources/store/openfiles"
)

// The kinds of blobs that a source keeps for a shard.
const (
	kindIndex  = "index"
	kindBlocks = "blocks"
	kindDeep   = "deep"
	kindPieces = "pieces" // counts of the pieces of a shard of tokens
	// of a shard with a seekable copy: the digest of the packed file's content, and the index of the copy
	kindCopy      = "copy"
	kindCopyIndex = "copy-index"
)

// digestEnds is the length of each end of a file that its digest covers.
const digestEnds = 1 << 20

// shardPaths returns the paths of a shard's file and of its companions.
func shardPaths(format Format, path string) []string {
	paths := []string{path}
	if companions := format.Traits().Companions; companions != nil {
		paths = append(paths, companions(path)...)
	}
	return paths
}

// mostPaths returns the most files of one of these shards.
func mostPaths(format Format, files []find.File) int {
	most := 1
	if format.Traits().Companions != nil {
		for i := range files {
			most = max(most, len(shardPaths(format, files[i].Path)))
		}
	}
	return most
}

// shardDigest hashes size, first and last MiB of a shard's file and of its companions; deep hashes every byte.
func (e *evidence) shardDigest(path string, deep bool) (size int64, d millrace.Digest, err error) {
	h, err := blake2b.New(len(d), nil)
	if err != nil {
		return 0, d, fmt.Errorf("digest %s: %w", path, err)
	}
	for i, p := range shardPaths(e.format, path) {
		n, err := e.digestFile(h, p, deep)
		if err != nil {
			return 0, d, err
		}
		if i == 0 {
			size = n
		}
	}
	h.Sum(d[:0])
	return size, d, nil
}

// openFile opens a file for one reading. Its close gives its place among the process's open files back.
func (e *evidence) openFile(path string) (OpenFile, error) {
	file, err := e.files.Open(func() (io.Closer, error) { return e.fs.Open(path) })
	if err != nil {
		return nil, err
	}
	return countedFile{file.(OpenFile), e.files}, nil
}

// countedFile is a file of openFile.
type countedFile struct {
	OpenFile
	files *openfiles.Pool
}

// Close implements io.Closer.
func (f countedFile) Close() error {
	defer f.files.Closed()
	return f.OpenFile.Close()
}

func (e *evidence) digestFile(h io.Writer, path string, deep bool) (int64, error) {
	f, err := e.openFile(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	size := f.Size()
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(size)))
	if deep {
		if _, err := io.CopyBuffer(h, NewReader(f, 0, size), make([]byte, digestEnds)); err != nil {
			return 0, fmt.Errorf("digest %s: %w", path, err)
		}
		return size, nil
	}
	end := make([]byte, min(size, digestEnds))
	for _, off := range []int64{0, size - int64(len(end))} {
		if err := ReadFull(f, end, off); err != nil {
			return 0, fmt.Errorf("digest %s: %w", path, err)
		}
		h.Write(end)
		if err := find.CheckContent(path, end, size); err != nil {
			return 0, err
		}
	}
	return size, nil
}

// evidence keeps indexes and digests of shards, and compares files with them. It is safe for concurrent use.
type evidence struct {
	fs       FS
	files    *openfiles.Pool
	format   Format
	kept     *kept.Store
	patience *patience
	copies   *copies.Shelf // of packed files; nil: the source wants no copies
	log      *slog.Logger
}

var _ guard.Evidence = (*evidence)(nil)

// kind names a blob of this source's format under its settings.
func (e *evidence) kind(kind string) string { return settled(e.format) + "-" + kind }

// Identity implements guard.Evidence.
func (e *evidence) Identity(path string) (identity.File, error) { return e.fs.Identity(path) }

// Digest implements guard.Evidence.
func (e *evidence) Digest(path string) (int64, millrace.Digest, error) {
	return e.shardDigest(path, false)
}

// CoversAll implements guard.Evidence: short files are digested from end to end.
func (e *evidence) CoversAll(files []identity.File) bool {
	return !slices.ContainsFunc(files, func(f identity.File) bool { return f.Size > 2*digestEnds })
}

// The blocks of a sample.
const (
	sampleBlocks = 16
	sampleBlock  = 4 << 10 // bytes
)

// Sample implements guard.Evidence. It hashes blocks between the ends that the digest covers.
func (e *evidence) Sample(paths []string) (uint64, error) {
	h := xxh3.New()
	buf := make([]byte, sampleBlock)
	for _, path := range paths {
		f, err := e.openFile(path)
		if err != nil {
			return 0, err
		}
		for i := range int64(sampleBlocks) {
			at := digestEnds + (f.Size()-2*digestEnds)/sampleBlocks*i
			if at < digestEnds || at+sampleBlock > f.Size() {
				break
			}
			if err := ReadFull(f, buf, at); err != nil {
				return 0, errors.Join(fmt.Errorf("sample %s: %w", path, err), f.Close())
			}
			h.Write(buf)
		}
		if err := f.Close(); err != nil {
			return 0, err
		}
	}
	return h.Sum64() | 1, nil
}

// HasIndex implements guard.Evidence.
func (e *evidence) HasIndex(sh millrace.Shard) bool {
	if _, _, ok := e.loadIndex(sh, kindIndex); ok || e.copies == nil {
		return ok
	}
	_, ok := e.kept.Load(sh.Digest, e.kind(kindCopy))
	return ok
}

// Content implements guard.Evidence.
func (e *evidence) Content(sh millrace.Shard) func(ctx context.Context) (since string, err error) {
	if content := e.contentOf(sh); content != nil {
		return func(ctx context.Context) (string, error) {
			is, err := e.hashFile(ctx, sh.Path)
			if err == nil && !bytes.Equal(is, content) {
				return "since it was indexed", nil
			}
			return "", err
		}
	}
	if deep, ok := e.kept.Load(sh.Digest, e.kind(kindDeep)); ok {
		return func(context.Context) (string, error) {
			_, is, err := e.shardDigest(sh.Path, true)
			if err == nil && !bytes.Equal(is[:], deep) {
				return "since all of it was digested", nil
			}
			return "", err
		}
	}
	return nil
}

// contentOf returns the digest of a file's content that was kept when all of the file was read, nil without one.
func (e *evidence) contentOf(sh millrace.Shard) []byte {
	if _, content, ok := e.loadIndex(sh, kindIndex); ok && content != nil {
		return content
	}
	if e.copies == nil {
		return nil
	}
	content, _ := e.kept.Load(sh.Digest, e.kind(kindCopy))
	return content
}

// compareDeep hashes every byte of a shard and compares with the hash first seen for its digest.
func (e *evidence) compareDeep(sh millrace.Shard, indexDir string) error {
	_, deep, err := e.shardDigest(sh.Path, true)
	if err != nil {
		return err
	}
	was, ok := e.kept.Load(sh.Digest, e.kind(kindDeep))
	if !ok {
		return e.kept.Save(sh.Digest, e.kind(kindDeep), deep[:])
	}
	if string(was) != string(deep[:]) {
		return millrace.Errorf(millrace.ErrMismatch,
			"file %s changed between its first and last MiB since it was first checked; restore it, "+
				"or remove %s to accept it",
			sh.Path, indexDir)
	}
	return nil
}

// hashFile returns the digest of every byte of a file.
func (e *evidence) hashFile(ctx context.Context, path string) ([]byte, error) {
	e.log.Info("the identity of a file is not known; comparing its content", "file", path)
	f, err := e.openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := newContentHash()
	r := NewReader(f, 0, f.Size())
	r.Progress(func(int64) { e.patience.tried() })
	buf := make([]byte, 1<<20)
	for ctx.Err() == nil && !e.patience.isOver() {
		at := r.Offset()
		n, err := r.Read(buf)
		if errors.Is(err, io.EOF) {
			return h.sum(f.Size()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("digest %s: %w", path, err)
		}
		h.add(buf[:n], at)
	}
	return nil, fmt.Errorf("digest %s: %w", path, cmp.Or(ctx.Err(), context.Canceled))
}

// indexContent marks the blob of an index that has the digest of its file's content. The blob then ends with 16 bytes
// of digest and this mark.
const indexContent = "MRXXH128"

// loadIndex returns the kept index of a shard or of its copy: the format's blob, and the digest of the file's content
// if it is known.
func (e *evidence) loadIndex(sh millrace.Shard, kind string) (blob, content []byte, ok bool) {
	blob, ok = e.kept.Load(sh.Digest, e.kind(kind))
	if rest, found := bytes.CutSuffix(blob, []byte(indexContent)); found && len(rest) >= 16 {
		return rest[: len(rest)-16 : len(rest)-16], rest[len(rest)-16:], ok
	}
	return blob, nil, ok
}

// saveIndex keeps an index, with the digest of its file's content if it is not nil.
func (e *evidence) saveIndex(sh millrace.Shard, kind string, blob, content []byte) error {
	if content != nil {
		blob = slices.Concat(blob, content, []byte(indexContent))
	}
	return e.kept.Save(sh.Digest, e.kind(kind), blob)
}
