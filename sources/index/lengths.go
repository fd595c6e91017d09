package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"millrace"
)

// A length store is a head and one word for each record. The head, little-endian: magic, u64 records, the shard's digest, the
// transform's digest, u64 zero, u64 hash of all that. A word is 0 where the length is unknown, else u32 length + 1 and above it u32
// checksum of record, length and file, so that each word stands for itself whatever happened to its neighbours.
const (
	lengthsMagic = "MRLENGT1"
	lengthsHead  = 64
	lengthsExt   = ".len"
)

// Lengths remembers the tokens of each record of one shard under one transform. Several processes may have it open: words are
// written whole, and all write the same. It is safe for concurrent use.
type Lengths struct {
	salt uint64

	mu    sync.RWMutex // held for reading while words is used: Close takes the mapping away
	file  []byte
	words []uint64
}

// Lengths opens the length store of a shard with so many records, or makes it. One that does not fit is replaced.
func (s *Store) Lengths(shard, transform millrace.Digest, count uint64) (*Lengths, error) {
	if count > 1<<48 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "open length store: %d records", count)
	}
	head := lengthsHeader(shard, transform, count)
	name := shard.String() + "-" + transform.String() + lengthsExt
	path := filepath.Join(s.dir, name)
	l, err := openLengths(path, head, count)
	if err == nil {
		return l, nil
	}
	replace := !errors.Is(err, fs.ErrNotExist)
	if replace {
		s.log.Warn("length store is not used and begins anew", "file", path, "err", err)
	}
	err = s.publish(name, replace, func(f TempFile) error {
		if _, err := f.Write(head); err != nil {
			return err
		}
		return f.Reserve(lengthsHead + int64(count)*8)
	})
	if err == nil {
		l, err = openLengths(path, head, count)
	}
	if err != nil {
		return nil, fmt.Errorf("open length store %s: %w", path, err)
	}
	return l, nil
}

func lengthsHeader(shard, transform millrace.Digest, count uint64) []byte {
	h := make([]byte, 0, lengthsHead)
	h = append(h, lengthsMagic...)
	h = binary.LittleEndian.AppendUint64(h, count)
	h = append(append(h, shard[:]...), transform[:]...)
	h = binary.LittleEndian.AppendUint64(h, 0)
	return binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
}

func openLengths(path string, head []byte, count uint64) (*Lengths, error) {
	b, err := mapFile(path, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) != lengthsHead+count*8 || string(b[:lengthsHead]) != string(head) {
		unix.Munmap(b)
		return nil, errors.New("its head does not fit the shard")
	}
	l := &Lengths{salt: xxh3.Hash(head), file: b}
	if count > 0 {
		// The mapping begins at a page and the head has 64 bytes, so words are aligned.
		l.words = unsafe.Slice((*uint64)(unsafe.Pointer(&b[lengthsHead])), count)
	}
	return l, nil
}

// Get returns a record's length; false where it is not known, or the word is damaged.
func (l *Lengths) Get(record uint64) (tokens uint32, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if record >= uint64(len(l.words)) {
		return 0, false
	}
	w := atomic.LoadUint64(&l.words[record])
	if !l.isLength(record, w) {
		return 0, false
	}
	return uint32(w) - 1, true
}

// isLength tells whether a word of a record is one that holds its length.
func (l *Lengths) isLength(record, w uint64) bool {
	return uint32(w) != 0 && uint32(w) != badTokens+1 && w == l.word(record, uint32(w)-1)
}

// Put remembers a record's length. Records that are not in the shard, and the lengths that have no word, are passed over. A length that is
// known stays, whatever a later reading finds: plans were made of it, and are made of it again.
func (l *Lengths) Put(record uint64, tokens uint32) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if record < uint64(len(l.words)) && tokens < badTokens {
		l.learn(record, l.word(record, tokens))
	}
}

// learn puts a word where no length is known. Of several that come at once, from whatever process, one stays.
func (l *Lengths) learn(record, w uint64) {
	if was := atomic.LoadUint64(&l.words[record]); !l.isLength(record, was) {
		atomic.CompareAndSwapUint64(&l.words[record], was, w)
	}
}

// badTokens is the length that no record has: with it, a word says that the record is bad.
const badTokens = 1<<32 - 2

// PutBad remembers that a record is bad where a record may have so many bytes, unless its length is known. Get does not find it.
func (l *Lengths) PutBad(record uint64, limit int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if record < uint64(len(l.words)) {
		l.learn(record, l.badWord(record, limit))
	}
}

// Bad tells whether a record is known to be bad under that limit.
func (l *Lengths) Bad(record uint64, limit int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return record < uint64(len(l.words)) && atomic.LoadUint64(&l.words[record]) == l.badWord(record, limit)
}

// badWord is checked as of another file than the lengths are, for each limit its own.
func (l *Lengths) badWord(record uint64, limit int64) uint64 {
	return l.word(record^bits.Reverse64(uint64(limit)+1), badTokens)
}

// word is the only word that stands for this length of this record in this file.
func (l *Lengths) word(record uint64, tokens uint32) uint64 {
	hi, lo := bits.Mul64(record^l.salt, 0x9E3779B97F4A7C15)
	hi, lo = bits.Mul64(hi^lo^uint64(tokens), 0xD6E8FEB86659FD93)
	return (hi^lo)>>32<<32 | uint64(tokens+1)
}

// Close lets go of the file; what was put is in it. Later calls find nothing.
func (l *Lengths) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	b := l.file
	l.file, l.words = nil, nil
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("close length store: %w", err)
	}
	return nil
}
