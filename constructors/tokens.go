package constructors

import (
	"unsafe"

	"millrace/internal/tokenid"
)

// Tokens are the ids of one segment: 32-bit ids, or 16-bit ids as a token file has them. Only 32-bit ids can have the
// bit tokenid.Untrained. The zero value is none.
type Tokens struct {
	wide   []uint32
	narrow []uint16
}

// Wide returns tokens over 32-bit ids.
func Wide(ids []uint32) Tokens { return Tokens{wide: ids} }

// Narrow returns tokens over 16-bit ids.
func Narrow(ids []uint16) Tokens { return Tokens{narrow: ids} }

// Of returns tokens over the ids in b, which have 32 bits each or 16. The caller may not write to b afterwards.
func Of(b []byte, isWide bool) Tokens {
	if isWide {
		return Wide(tokenid.IDs[uint32](b))
	}
	return Narrow(tokenid.IDs[uint16](b))
}

// Room is memory for a segment: one element for each id of 32 bits. Ids of 16 bits use its first half.
type Room []uint32

// Narrow returns the room for 16-bit ids.
func (r Room) Narrow() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(r))), len(r))
}

// Write writes ids, little-endian, from number `from` on.
func (r Room) Write(from int, ids []byte, isWide bool) {
	if isWide {
		copy(tokenid.Bytes(r[from:]), ids)
	} else {
		copy(tokenid.Bytes(r.Narrow()[from:]), ids)
	}
}

// Tokens returns the ids that fill the room.
func (r Room) Tokens(isWide bool) Tokens {
	if isWide {
		return Wide(r)
	}
	return Narrow(r.Narrow())
}

// AllWide returns Wide of each segment's ids.
func AllWide(ids [][]uint32) []Tokens {
	out := make([]Tokens, len(ids))
	for i := range ids {
		out[i] = Wide(ids[i])
	}
	return out
}

// IsWide reports whether the ids have 32 bits.
func (t Tokens) IsWide() bool { return t.wide != nil }

// Width returns the bytes of an id.
func (t Tokens) Width() int {
	if t.IsWide() {
		return 4
	}
	return 2
}

// Bytes returns the memory of the ids from number `from` to before number `to`, little-endian.
func (t Tokens) Bytes(from, to int) []byte {
	if t.IsWide() {
		return tokenid.Bytes(t.wide[from:to])
	}
	return tokenid.Bytes(t.narrow[from:to])
}

// IsNone reports whether there are no ids.
func (t Tokens) IsNone() bool { return t.Len() == 0 }

// Len returns the number of ids.
func (t Tokens) Len() int { return len(t.wide) + len(t.narrow) }

// IDs returns the ids in 32 bits, with the bits of untrained tokens. They may be the tokens' own memory.
func (t Tokens) IDs() []uint32 {
	if t.narrow == nil {
		return t.wide
	}
	out := make([]uint32, len(t.narrow))
	widen(out, t.narrow)
	return out
}

// at returns one id.
func (t Tokens) at(i int) uint32 {
	if t.narrow != nil {
		return uint32(t.narrow[i])
	}
	return t.wide[i]
}

// write writes the ids from number `from` on to all of out. It reports whether any of them is untrained; out then has
// their bits.
func write[T int32 | int64](out []T, t Tokens, from int) bool {
	if t.narrow != nil {
		widen(out, t.narrow[from:])
		return false
	}
	return widen(out, t.wide[from:])&tokenid.Untrained != 0
}

// widen fills out with converted ids, and returns the bits that any of them has. Four at a time need one
// check of bounds.
func widen[T int32 | int64 | uint32, S uint16 | uint32](out []T, ids []S) (any S) {
	ids = ids[:len(out)]
	for len(out) >= 4 && len(ids) >= 4 {
		out[0], out[1], out[2], out[3] = T(ids[0]), T(ids[1]), T(ids[2]), T(ids[3])
		any |= ids[0] | ids[1] | ids[2] | ids[3]
		out, ids = out[4:], ids[4:]
	}
	for i := range out {
		out[i] = T(ids[i])
		any |= ids[i]
	}
	return any
}

// untrained returns the number of untrained ids among those from number `from` to before number `to`.
func (t Tokens) untrained(from, to int) (n uint64) {
	if t.narrow != nil || from >= to {
		return 0
	}
	ids := t.wide[from:to]
	for ; len(ids) >= 8; ids = ids[8:] {
		if ids[0]|ids[1]|ids[2]|ids[3]|ids[4]|ids[5]|ids[6]|ids[7] < tokenid.Untrained {
			continue // none of the eight, as in plain text
		}
		for _, id := range ids[:8] {
			n += uint64(id >> 31)
		}
	}
	for _, id := range ids {
		n += uint64(id >> 31)
	}
	return n
}

// repeat writes one value to all of out: a few, then copies of them.
func repeat[T int32 | int64](out []T, v T) {
	n := min(len(out), 16)
	for i := range out[:n] {
		out[i] = v
	}
	for n > 0 && n < len(out) {
		n += copy(out[n:], out[:n])
	}
}
