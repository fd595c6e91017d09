package index

import (
	"bufio"
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

// A length store is a head and an entry for each record. The head, little-endian: magic, u64 records, the shard's
// digest, the transform's digest, u64 zero, u64 hash of the bytes before. An entry is one word or two: the length, then
// a checksum of the tokens. A word is 0 if its value is unknown. Else its lower half is u32 value + 1, and its upper
// half is a u32 hash of record, value and file. So each word shows by itself whether it is valid.
const (
	lengthsMagic = "MRLENGT1" // one word an entry: stores of the first release, and answers of filters
	checkedMagic = "MRLENGT2" // two words an entry
	lengthsHead  = 64
	lengthsExt   = ".len"
	checkedExt   = ".tok"
)

// Lengths remembers the number of tokens of each record of one shard under one transform, and their checksum. Several
// processes may have it open: words are written whole, and all processes write the same. It is safe for concurrent use.
type Lengths struct {
	salt    uint64
	checked bool // entries have two words

	mu    sync.RWMutex // held for reading while words is used: Close takes the mapping away
	file  []byte
	words []uint64
}

// kindOfLengths is one of the two layouts of a length store.
type kindOfLengths struct {
	magic, ext string
	entry      int64 // bytes
}

func plainLengths() kindOfLengths   { return kindOfLengths{lengthsMagic, lengthsExt, 8} }
func checkedLengths() kindOfLengths { return kindOfLengths{checkedMagic, checkedExt, 16} }

// Lengths opens the length store of a shard with count records, or makes it. It replaces a file that does not fit. A
// new store begins with the lengths in the first release's store of the same records. Their checksums are unknown until
// the records are read again.
func (s *Store) Lengths(shard, transform millrace.Digest, count uint64) (*Lengths, error) {
	return s.lengths(shard, transform, count, checkedLengths())
}

// Answers opens a store of the filters' answers: a number in place of each length, and no checksums.
func (s *Store) Answers(shard, filters millrace.Digest, count uint64) (*Lengths, error) {
	return s.lengths(shard, filters, count, plainLengths())
}

func (s *Store) lengths(shard, transform millrace.Digest, count uint64, kind kindOfLengths) (*Lengths, error) {
	if count > 1<<48 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "open length store: %d records are too many", count)
	}
	head := lengthsHeader(kind.magic, shard, transform, count)
	// of both kinds, so that words can be copied
	salt := xxh3.Hash(lengthsHeader(lengthsMagic, shard, transform, count))
	bare := shard.String() + "-" + transform.String()
	path := filepath.Join(s.dir, bare+kind.ext)
	l, err := openLengths(path, head, salt, count, kind)
	if err == nil {
		return l, nil
	}
	replace := !errors.Is(err, fs.ErrNotExist)
	if replace {
		s.log.Warn("length store is not used and begins anew", "file", path, "err", err)
	}
	err = s.publish(bare+kind.ext, replace, func(f TempFile) error {
		if _, err := f.Write(head); err != nil {
			return err
		}
		if kind.magic == checkedMagic {
			return s.copyPlain(f, shard, transform, count)
		}
		return f.Reserve(lengthsHead + int64(count)*kind.entry)
	})
	if err == nil {
		l, err = openLengths(path, head, salt, count, kind)
	}
	if err != nil {
		return nil, fmt.Errorf("open length store %s: %w", path, err)
	}
	return l, nil
}

// copyPlain writes the entries of a new store. It copies the lengths of the plain store of these records, if there is
// one.
func (s *Store) copyPlain(f TempFile, shard, transform millrace.Digest, count uint64) error {
	kind := plainLengths()
	head := lengthsHeader(kind.magic, shard, transform, count)
	old, err := openLengths(filepath.Join(s.dir, shard.String()+"-"+transform.String()+kind.ext), head, xxh3.Hash(head),
		count, kind)
	if err != nil || count == 0 {
		return f.Reserve(lengthsHead + int64(count)*checkedLengths().entry)
	}
	defer old.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	for r := range count {
		entry := binary.LittleEndian.AppendUint64(out.AvailableBuffer(), atomic.LoadUint64(&old.words[r]))
		if _, err := out.Write(binary.LittleEndian.AppendUint64(entry, 0)); err != nil {
			return err
		}
	}
	return out.Flush()
}

func lengthsHeader(magic string, shard, transform millrace.Digest, count uint64) []byte {
	h := make([]byte, 0, lengthsHead)
	h = append(h, magic...)
	h = binary.LittleEndian.AppendUint64(h, count)
	h = append(append(h, shard[:]...), transform[:]...)
	h = binary.LittleEndian.AppendUint64(h, 0)
	return binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
}

func openLengths(path string, head []byte, salt, count uint64, kind kindOfLengths) (*Lengths, error) {
	b, err := mapFile(path, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) != lengthsHead+count*uint64(kind.entry) || string(b[:lengthsHead]) != string(head) {
		unix.Munmap(b)
		return nil, errors.New("its head or its size is of another shard")
	}
	l := &Lengths{salt: salt, checked: kind.magic == checkedMagic, file: b}
	if count > 0 {
		// The mapping begins at a page and the head has 64 bytes, so words are aligned.
		l.words = unsafe.Slice((*uint64)(unsafe.Pointer(&b[lengthsHead])), count*uint64(kind.entry)/8)
	}
	return l, nil
}

// at returns the index of a record's length word. It returns false if the shard has no such record or the store is
// closed. l.mu is held.
func (l *Lengths) at(record uint64) (word uint64, ok bool) {
	if !l.checked {
		return record, record < uint64(len(l.words))
	}
	return 2 * record, record < uint64(len(l.words))/2
}

// Get returns a record's length, false if it is unknown or its word is damaged.
func (l *Lengths) Get(record uint64) (tokens uint32, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at, ok := l.at(record)
	if !ok {
		return 0, false
	}
	return l.value(record, atomic.LoadUint64(&l.words[at]))
}

// value returns the value of a record's word, false if the word is not valid.
func (l *Lengths) value(key, w uint64) (value uint32, ok bool) {
	if uint32(w) == 0 || uint32(w) == badTokens+1 || w != l.word(key, uint32(w)-1) {
		return 0, false
	}
	return uint32(w) - 1, true
}

// Put remembers a record's length. It ignores records that are not in the shard, and lengths that have no word. A known
// length stays, also if a later reading finds another, because plans depend on it.
func (l *Lengths) Put(record uint64, tokens uint32) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if at, ok := l.at(record); ok && tokens < badTokens {
		l.learn(at, record, l.word(record, tokens))
	}
}

// learn stores a word if the value of its record is unknown. If several come at once, from any process, one of them
// stays.
func (l *Lengths) learn(at, key, w uint64) {
	was := atomic.LoadUint64(&l.words[at])
	if _, ok := l.value(key, was); !ok {
		atomic.CompareAndSwapUint64(&l.words[at], was, w)
	}
}

// sumKey returns the key of a record's checksum word. The word is valid at no other place.
func sumKey(record uint64) uint64 { return bits.Reverse64(^record) }

// Sum returns the checksum of a record's tokens, false if it is unknown.
func (l *Lengths) Sum(record uint64) (sum uint32, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at, ok := l.at(record)
	if !ok || !l.checked {
		return 0, false
	}
	return l.value(sumKey(record), atomic.LoadUint64(&l.words[at+1]))
}

// PutSum remembers the checksum of a record's tokens, if it is unknown. It ignores the two highest numbers, which Sum
// never returns.
func (l *Lengths) PutSum(record uint64, sum uint32) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if at, ok := l.at(record); ok && l.checked && sum < badTokens {
		l.learn(at+1, sumKey(record), l.word(sumKey(record), sum))
	}
}

// Sum returns the checksum of a document's tokens.
func Sum(tokens []uint32) uint32 {
	if len(tokens) == 0 {
		return 0
	}
	sum := xxh3.Hash(unsafe.Slice((*byte)(unsafe.Pointer(&tokens[0])), 4*len(tokens)))
	return min(uint32(sum>>32)^uint32(sum), badTokens-1)
}

// badTokens is the value of no record's length. A word with this value marks the record as bad.
const badTokens = 1<<32 - 2

// PutBad remembers that a record is bad under a limit of its bytes, unless its length is known. Get does not return
// such a record.
func (l *Lengths) PutBad(record uint64, limit int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if at, ok := l.at(record); ok {
		l.learn(at, record, l.badWord(record, limit))
	}
}

// Bad reports whether a record is known to be bad under a limit of its bytes.
func (l *Lengths) Bad(record uint64, limit int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at, ok := l.at(record)
	return ok && atomic.LoadUint64(&l.words[at]) == l.badWord(record, limit)
}

// badWord returns the word of a record that is bad under a limit. Each limit has its own word.
func (l *Lengths) badWord(record uint64, limit int64) uint64 {
	return l.word(record^bits.Reverse64(uint64(limit)+1), badTokens)
}

// word returns the only word for this value under this key in this file.
func (l *Lengths) word(key uint64, value uint32) uint64 {
	hi, lo := bits.Mul64(key^l.salt, 0x9E3779B97F4A7C15)
	hi, lo = bits.Mul64(hi^lo^uint64(value), 0xD6E8FEB86659FD93)
	return (hi^lo)>>32<<32 | uint64(value+1)
}

// Close unmaps the file, which keeps its words. Later calls find nothing.
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
