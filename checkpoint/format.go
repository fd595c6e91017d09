package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// formatVersion is the version of the layout in docs/bytes-on-disk.md, and of the bodies that the orchestrator stores.
// It rises with every change to that page.
const formatVersion = 2

// NoStep is the Step of a record or snapshot that belongs to no step.
const NoStep int64 = -1

// Limits of one commit.
const (
	MaxDigest = 2 << 10   // bytes of an Entry's digest
	maxStream = 255       // bytes of a stream's name
	maxCommit = 256 << 20 // bytes of all bodies and plans of one Commit
)

// The tags: first byte of every key.
const (
	tagFormat     byte = 1
	tagRecord     byte = 2
	tagSnapshot   byte = 3
	tagEntry      byte = 4
	tagPlan       byte = 5
	tagIndexEntry byte = 6
	tagEnd        byte = 7 // one past the last
)

// Bytes before the variable part of each value (docs/bytes-on-disk.md).
const (
	crcSize      = 4
	formatHead   = crcSize + 4
	recordHead   = crcSize + 1 + 8
	snapshotHead = crcSize + 8
	entryHead    = crcSize + 8 + 4 + 4
	bareHead     = crcSize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// StepKey is the permanent name of a step: a step of one attempt of one stream. Keys are ordered by stream, then
// attempt, then step.
type StepKey struct {
	Stream  string // 1 to 255 bytes, no zero byte
	Attempt uint32
	Step    uint64
}

// String renders the key as stream/attempt/step.
func (k StepKey) String() string { return fmt.Sprintf("%s/%d/%d", k.Stream, k.Attempt, k.Step) }

func (k StepKey) validate() error { return validateStream(k.Stream) }

func validateStream(stream string) error {
	switch {
	case stream == "":
		return errors.New("stream has no name")
	case len(stream) > maxStream:
		return fmt.Errorf("stream name has %d bytes, at most %d are allowed", len(stream), maxStream)
	case strings.IndexByte(stream, 0) >= 0:
		return fmt.Errorf("stream name %q holds a zero byte", stream)
	}
	return nil
}

func indexKey(tag byte, index uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tag}, index)
}

func stepKey(tag byte, k StepKey) []byte {
	b := make([]byte, 0, 1+len(k.Stream)+1+4+8)
	b = append(b, tag)
	b = append(b, k.Stream...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint32(b, k.Attempt)
	return binary.BigEndian.AppendUint64(b, k.Step)
}

func parseIndexKey(key []byte) (uint64, bool) {
	if len(key) != 1+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[1:]), true
}

func parseStepKey(key []byte) (StepKey, bool) {
	const tail = 1 + 4 + 8 // terminator, attempt, step
	n := len(key) - tail
	if n < 2 || key[n] != 0 {
		return StepKey{}, false
	}
	k := StepKey{
		Stream:  string(key[1:n]),
		Attempt: binary.BigEndian.Uint32(key[n+1:]),
		Step:    binary.BigEndian.Uint64(key[n+5:]),
	}
	return k, k.validate() == nil
}

// seal fills in the checksum in the first crcSize bytes of a value.
func seal(key, value []byte) []byte {
	binary.LittleEndian.PutUint32(value, checksum(key, value))
	return value
}

func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value[crcSize:])
}

var (
	errShort = errors.New("value is too short")
	errCRC   = errors.New("checksum does not match")
)

// unseal checks a value of at least head bytes against its checksum.
func unseal(key, value []byte, head int) error {
	if len(value) < head {
		return fmt.Errorf("%w: %d bytes, at least %d expected", errShort, len(value), head)
	}
	if got, want := checksum(key, value), binary.LittleEndian.Uint32(value); got != want {
		return fmt.Errorf("%w: computed %08x, stored %08x", errCRC, got, want)
	}
	return nil
}

// newValue returns a value with crcSize free bytes for the checksum, and capacity for size more bytes.
func newValue(size int) []byte { return make([]byte, crcSize, crcSize+size) }

func encodeFormat(key []byte, version uint32, createdBy string) []byte {
	v := binary.LittleEndian.AppendUint32(newValue(4+len(createdBy)), version)
	return seal(key, append(v, createdBy...))
}

func decodeFormat(key, value []byte) (version uint32, createdBy string, err error) {
	if err := unseal(key, value, formatHead); err != nil {
		return 0, "", err
	}
	return binary.LittleEndian.Uint32(value[crcSize:]), string(value[formatHead:]), nil
}

// encodeBare returns a value that holds only its body: a plan or an index entry.
func encodeBare(key, body []byte) []byte {
	return seal(key, append(newValue(len(body)), body...))
}

// decodeBare aliases value.
func decodeBare(key, value []byte) ([]byte, error) {
	if err := unseal(key, value, bareHead); err != nil {
		return nil, err
	}
	return value[bareHead:], nil
}

// describeIndexKey names a key of the journal in an error, also if the key is damaged.
func describeIndexKey(what string, key []byte) string {
	if index, ok := parseIndexKey(key); ok {
		return fmt.Sprintf("%s %d", what, index)
	}
	return fmt.Sprintf("%s with key %x", what, key)
}

// describeStepKey names a ledger key in an error, also if the key is damaged.
func describeStepKey(key []byte) string {
	if k, ok := parseStepKey(key); ok {
		return k.String()
	}
	return fmt.Sprintf("with key %x", key)
}
