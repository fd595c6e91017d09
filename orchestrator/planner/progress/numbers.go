package progress

import "encoding/binary"

const (
	max32 = 1<<32 - 1
	max64 = 1<<64 - 1
)

// numbers reads varints from the front of rest. After a number that is missing or too large it has failed, and returns
// zeros.
type numbers struct {
	rest   []byte
	failed bool
}

// unsigned reads a number from 0 to most.
func (r *numbers) unsigned(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *numbers) signed() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// flags reads one byte.
func (r *numbers) flags() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *numbers) fail() { r.rest, r.failed = nil, true }
