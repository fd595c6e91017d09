package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"millrace"
)

// Earlier releases kept a file a blob, `<digest>-<kind>.idx`, and a file of lengths a shard and transform,
// `<digest>-<transform>.tok`, or `.len` if its entries have one word. Blobs and lengths are copied into the packed
// files when they are first looked up. A blob's file has a head of 64 bytes, little-endian: magic, u64 bytes of the
// payload, the shard's digest, u64 hash of the kind, 128-bit hash of the payload, u64 hash of the bytes before.
const (
	olderMagic = "MRINDEX1"
	olderHead  = 64
	olderExt   = ".idx"
)

// hasOlder reports whether a directory has files of an earlier release.
func hasOlder(dir string) bool {
	d, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		if slices.ContainsFunc(names, func(name string) bool {
			ext := filepath.Ext(name)
			return ext == olderExt || ext == lengthsExt || ext == checkedExt
		}) {
			return true
		}
		if err != nil || len(names) == 0 {
			return false
		}
	}
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// hasOlder reports whether files of an earlier release may be there.
func (s *Store) hasOlder() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log == nil || s.log.flags&flagOlder != 0
}

// older returns a blob that an earlier release kept.
func (s *Store) older(shard millrace.Digest, kind string) ([]byte, bool) {
	path := filepath.Join(s.dir, shard.String()+"-"+kind+olderExt)
	b, err := os.ReadFile(path)
	if err == nil {
		if err = checkOlder(b, shard, kind); err == nil {
			return b[olderHead:], true
		}
	}
	if !isMissing(err) {
		s.note.Warn("index file is not used and will be made again", "file", path, "err", err)
	}
	return nil, false
}

func checkOlder(b []byte, shard millrace.Digest, kind string) error {
	if len(b) < olderHead {
		return fmt.Errorf("%d bytes are no index file", len(b))
	}
	blob := b[olderHead:]
	h := make([]byte, 0, olderHead)
	h = append(h, olderMagic...)
	h = binary.LittleEndian.AppendUint64(h, uint64(len(blob)))
	h = append(h, shard[:]...)
	h = binary.LittleEndian.AppendUint64(h, xxh3.HashString(kind))
	sum := xxh3.Hash128(blob).Bytes()
	h = append(h, sum[:]...)
	h = binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
	if string(b[:olderHead]) != string(h) {
		return errors.New("its content does not have the checksum in its head")
	}
	return nil
}

// olderWords returns the words of a file of lengths of an earlier release.
func (s *Store) olderWords(shard, transform millrace.Digest, count uint64, kind kindOfLengths) ([]byte, bool) {
	path := filepath.Join(s.dir, shard.String()+"-"+transform.String()+kind.ext)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, false
	}
	head := lengthsHeader(kind.magic, shard, transform, count)
	if uint64(len(b)) != uint64(len(head))+count*uint64(kind.entry) || string(b[:len(head)]) != string(head) {
		return nil, false
	}
	return b[len(head):], true
}
