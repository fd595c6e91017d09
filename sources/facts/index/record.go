package index

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"millrace"
)

// A log is a head and records. The log's head, little-endian: magic, u64 flags, u64 hash of the bytes before. A record
// begins at a multiple of 8 bytes:
//
//	u64 magic, u64 bytes of the payload
//	the shard's digest, u64 hash of the kind, u64 hash of the payload
//	u64 hash of the bytes before
//	the payload, and zero bytes up to the next multiple of 8
const (
	logMagic    = "MRSHARD1"
	logHead     = 24
	recordMagic = "MRRECRD1"
	recordHead  = 56

	flagOlder = 1 // files of an earlier release were in the directory when the log was made
)

// key names a blob.
type key struct {
	shard millrace.Digest
	kind  uint64 // hash of the kind's text
}

func newKey(shard millrace.Digest, kind string) key { return key{shard, xxh3.HashString(kind)} }

func (k key) hash() uint64 {
	var b [24]byte
	copy(b[:], k.shard[:])
	binary.LittleEndian.PutUint64(b[16:], k.kind)
	return xxh3.Hash(b[:])
}

// record is the head of a record.
type record struct {
	key
	size int64 // of the payload
	sum  uint64
}

// span returns the bytes that the record takes in the log.
func (r record) span() int64 { return recordHead + align(r.size) }

func align(n int64) int64 { return (n + 7) &^ 7 }

func appendRecord(dst []byte, k key, payload []byte) []byte {
	at := len(dst)
	dst = append(dst, recordMagic...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(payload)))
	dst = append(dst, k.shard[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, k.kind)
	dst = binary.LittleEndian.AppendUint64(dst, xxh3.Hash(payload))
	dst = binary.LittleEndian.AppendUint64(dst, xxh3.Hash(dst[at:]))
	dst = append(dst, payload...)
	return append(dst, make([]byte, align(int64(len(payload)))-int64(len(payload)))...)
}

// readHead decodes the head of the record at the beginning of b. It returns false if there is none.
func readHead(b []byte) (r record, ok bool) {
	if len(b) < recordHead || string(b[:8]) != recordMagic {
		return r, false
	}
	le := binary.LittleEndian
	if le.Uint64(b[recordHead-8:]) != xxh3.Hash(b[:recordHead-8]) {
		return r, false
	}
	r.size = int64(le.Uint64(b[8:]))
	copy(r.shard[:], b[16:])
	r.kind, r.sum = le.Uint64(b[32:]), le.Uint64(b[40:])
	return r, r.size >= 0
}

// readRecord is readHead of a record that does not reach beyond b.
func readRecord(b []byte) (r record, ok bool) {
	r, ok = readHead(b)
	return r, ok && r.size <= int64(len(b)) && r.span() <= int64(len(b))
}

func newLogHead(flags uint64) []byte {
	h := binary.LittleEndian.AppendUint64([]byte(logMagic), flags)
	return binary.LittleEndian.AppendUint64(h, xxh3.Hash(h))
}

func readLogHead(b []byte) (flags uint64, ok bool) {
	if len(b) < logHead || string(b[:8]) != logMagic {
		return 0, false
	}
	le := binary.LittleEndian
	return le.Uint64(b[8:]), le.Uint64(b[logHead-8:]) == xxh3.Hash(b[:logHead-8])
}
