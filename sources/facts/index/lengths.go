package index

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"

	"millrace"
)

// The file of lengths has a head and regions. The head, little-endian: magic, u64 random number of the file, u64 hash
// of the bytes before, zero bytes up to 64. A region has an entry for each record of one shard under one transform. A
// record of the log has the place of a region: u64 number of the file, u64 offset. An entry is one word or two: the
// length, then a checksum of the tokens. A word is 0 if its value is unknown. Else its lower half is u32 value + 1, and
// its upper half is a u32 hash of record, value, shard and transform. So each word shows by itself whether it is valid.
//
// A region begins where the file ended when it was made, so no region has words of another one, also after a crash.
const (
	packMagic    = "MRLENPK1"
	packHead     = 64
	lengthsMagic = "MRLENGT1" // one word an entry: stores of the first release, and answers of filters
	checkedMagic = "MRLENGT2" // two words an entry
	lengthsExt   = ".len"
	checkedExt   = ".tok"
)

// Lengths remembers the number of tokens of each record of one shard under one transform, and their checksum. Several
// processes may have it open: words are written whole, and all processes write the same. It is safe for concurrent use,
// and valid until its store is closed.
type Lengths struct {
	salt    uint64
	checked bool // entries have two words
	words   []uint64
}

// kindOfLengths is one of the two layouts of a region.
type kindOfLengths struct {
	magic, ext string
	entry      int64 // bytes
}

func plainLengths() kindOfLengths   { return kindOfLengths{lengthsMagic, lengthsExt, 8} }
func checkedLengths() kindOfLengths { return kindOfLengths{checkedMagic, checkedExt, 16} }

// Lengths returns the lengths of a shard with count records. Without make, it returns nil if none were ever put.
// Lengths of an earlier release are copied; if they have no checksums, those are unknown until the records are read
// again.
func (s *Store) Lengths(shard, transform millrace.Digest, count uint64, make bool) (*Lengths, error) {
	return s.region(shard, transform, count, checkedLengths(), make)
}

// Answers returns the filters' answers: a number in place of each length, and no checksums.
func (s *Store) Answers(shard, filters millrace.Digest, count uint64, make bool) (*Lengths, error) {
	return s.region(shard, filters, count, plainLengths(), make)
}

func (s *Store) region(shard, transform millrace.Digest, count uint64, kind kindOfLengths, make bool) (
	*Lengths, error) {
	if count > 1<<40 {
		return nil, millrace.Errorf(
			millrace.ErrInvalid,
			"remember the lengths of a shard: %d records are too many",
			count,
		)
	}
	// of both kinds, so that words can be copied
	salt := xxh3.Hash(lengthsHeader(lengthsMagic, shard, transform, count))
	l := &Lengths{salt: salt, checked: kind.magic == checkedMagic}
	if count == 0 {
		return l, nil
	}
	size := int64(count) * kind.entry
	k := newKey(shard, fmt.Sprintf("%s %s %d", kind.magic, transform, count))
	b, err := s.placed(k, size)
	if b == nil && err == nil {
		older := s.olderEntries(shard, transform, count, kind)
		if older == nil && !make {
			return nil, nil
		}
		b, err = s.place(k, size, older)
	}
	if err != nil {
		return nil, fmt.Errorf("remember lengths in %s: %w", s.dir, err)
	}
	// A mapping begins at a page and a region at a multiple of 8 bytes, so words are aligned.
	l.words = unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), size/8)
	return l, nil
}

// olderEntries returns the entries that an earlier release kept for a new region, nil if it kept none.
func (s *Store) olderEntries(shard, transform millrace.Digest, count uint64, kind kindOfLengths) []byte {
	if !s.hasOlder() {
		return nil
	}
	words, ok := s.olderWords(shard, transform, count, kind)
	if ok || kind.magic != checkedMagic {
		return words
	}
	if words, ok = s.olderWords(shard, transform, count, plainLengths()); !ok {
		return nil
	}
	out := make([]byte, 2*len(words))
	for at := 0; at < len(words); at += 8 {
		copy(out[2*at:], words[at:at+8])
	}
	return out
}

// lengthsHeader returns the bytes that identify lengths: the head of the file of an earlier release. The words' hashes
// depend on it.
func lengthsHeader(magic string, shard, transform millrace.Digest, count uint64) []byte {
	h := make([]byte, 0, 64)
	h = append(h, magic...)
	h = binary.LittleEndian.AppendUint64(h, count)
	h = append(append(h, shard[:]...), transform[:]...)
	h = binary.LittleEndian.AppendUint64(h, 0)
	return binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
}

// at returns the index of a record's length word. It returns false if the shard has no such record.
func (l *Lengths) at(record uint64) (word uint64, ok bool) {
	if !l.checked {
		return record, record < uint64(len(l.words))
	}
	return 2 * record, record < uint64(len(l.words))/2
}

// Get returns a record's length, false if it is unknown or its word is damaged.
func (l *Lengths) Get(record uint64) (tokens uint32, ok bool) {
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
	at, ok := l.at(record)
	if !ok || !l.checked {
		return 0, false
	}
	return l.value(sumKey(record), atomic.LoadUint64(&l.words[at+1]))
}

// PutSum remembers the checksum of a record's tokens, if it is unknown. It ignores the two highest numbers, which Sum
// never returns.
func (l *Lengths) PutSum(record uint64, sum uint32) {
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
	if at, ok := l.at(record); ok {
		l.learn(at, record, l.badWord(record, limit))
	}
}

// Bad reports whether a record is known to be bad under a limit of its bytes.
func (l *Lengths) Bad(record uint64, limit int64) bool {
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
