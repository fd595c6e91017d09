package decode

import "slices"

// Tokens are ids in memory. They take two bytes each if all are below 2^16, three below 2^24, and four otherwise. They
// never change.
type Tokens struct {
	low  []uint16 // the lower bits of each id
	high []uint8  // the higher bits of each id; nil: all are zero
	wide []uint32 // the ids in place of low and high
}

// Pack returns a copy of ids.
func Pack(ids []uint32) Tokens {
	all := uint32(0)
	for _, id := range ids {
		all |= id
	}
	if all >= 1<<24 {
		return Tokens{wide: slices.Clone(ids)}
	}
	t := Tokens{low: make([]uint16, len(ids))}
	for i, id := range ids {
		t.low[i] = uint16(id)
	}
	if all >= 1<<16 {
		t.high = make([]uint8, len(ids))
		for i, id := range ids {
			t.high[i] = uint8(id >> 16)
		}
	}
	return t
}

// unpacked returns ids as they are. It owns them.
func unpacked(ids []uint32) Tokens { return Tokens{wide: ids} }

// Len returns the number of ids.
func (t *Tokens) Len() int { return len(t.low) + len(t.wide) }

// Append appends the ids from one index up to another.
func (t *Tokens) Append(dst []uint32, from, to int) []uint32 {
	if t.wide != nil {
		return append(dst, t.wide[from:to]...)
	}
	n := len(dst)
	dst = slices.Grow(dst, to-from)[:n+to-from]
	out := dst[n:]
	for i, low := range t.low[from:to] {
		out[i] = uint32(low)
	}
	if t.high != nil {
		for i, high := range t.high[from:to] {
			out[i] |= uint32(high) << 16
		}
	}
	return dst
}
