package tokenize

import "math/bits"

// scanMax is the longest piece whose parts fit the bits of a word. Longer pieces are merged in windows.
const scanMax = 64

// merger encodes one piece by byte pair encoding. Of all neighbours that merge into a token, the pair of the lowest
// rank merges first, and of equals the leftmost. This goes on until no pair merges. The merger is scratch of one
// encoder.
type merger struct {
	table   *mergeTable
	tokens  [scanMax]uint32 // by the part's first byte
	keys    mergeKeys
	windows windows
	stride  stride
}

// merge appends the tokens of a piece to dst.
func (m *merger) merge(dst []uint32, piece []byte) []uint32 {
	if len(piece) > scanMax {
		return m.mergeLong(dst, piece)
	}
	return m.mergeShort(dst, piece)
}

// mergeShort appends the tokens of a piece of at most scanMax bytes. It looks at every part for each merge.
func (m *merger) mergeShort(dst []uint32, piece []byte) []uint32 {
	live := m.start(piece)
	for {
		least := m.keys.least(len(piece))
		if least == noKey {
			break
		}
		live = m.join(live, int(least%scanMax), least/scanMax)
	}
	for ; live != 0; live &= live - 1 {
		dst = append(dst, m.tokens[bits.TrailingZeros64(live)%scanMax])
	}
	return dst
}

// start makes every byte a part and returns the first bytes of the parts as bits.
func (m *merger) start(piece []byte) (live uint64) {
	table := m.table
	last := len(piece) - 1
	m.keys.clear(len(piece))
	for i := range last {
		pair := uint(piece[i]) | uint(piece[i+1])<<8
		m.tokens[i%scanMax] = table.bytes[piece[i]]
		m.keys.set(i, table.starts[pair%(1<<16)])
	}
	m.tokens[last%scanMax] = table.bytes[piece[last]]
	return 2<<last - 1
}

// join merges the part at byte i with the next one into token, and returns the remaining parts.
func (m *merger) join(live uint64, i int, token uint32) uint64 {
	behind := live &^ (2<<i - 1)
	gone := bits.TrailingZeros64(behind)
	live &^= 1 << gone
	behind &= behind - 1
	m.tokens[i%scanMax] = token
	m.keys.drop(gone)
	if after := bits.TrailingZeros64(behind); after < scanMax {
		m.keys.set(i, m.table.find(token, m.tokens[after]))
	} else {
		m.keys.drop(i)
	}
	if before := bits.Len64(live & (1<<i - 1)); before > 0 {
		m.keys.set(before-1, m.table.find(m.tokens[(before-1)%scanMax], token))
	}
	return live
}

// mergeKeys has a key for every part: the rank of the token that it and the next part merge into, above the part's
// number. The least key is the leftmost of the lowest rank.
type mergeKeys [scanMax]uint32

const noKey = ^uint32(0)

func (k *mergeKeys) set(i int, rank uint32) {
	key := rank*scanMax | uint32(i)
	if rank == noToken {
		key = noKey
	}
	k[i%scanMax] = key
}

func (k *mergeKeys) drop(i int) { k[i%scanMax] = noKey }

// keyRow is the number of keys that are compared without a branch.
const keyRow = 16

func (k *mergeKeys) clear(n int) {
	for row := 0; row < n; row += keyRow {
		*(*[keyRow]uint32)(k[row:]) = [keyRow]uint32{
			noKey, noKey, noKey, noKey, noKey, noKey, noKey, noKey,
			noKey, noKey, noKey, noKey, noKey, noKey, noKey, noKey,
		}
	}
}

// least returns the least of the first n keys.
func (k *mergeKeys) least(n int) uint32 {
	least := noKey
	for row := 0; row < n; row += keyRow {
		r := (*[keyRow]uint32)(k[row:])
		a := min(min(r[0], r[1]), min(r[2], r[3]))
		b := min(min(r[4], r[5]), min(r[6], r[7]))
		c := min(min(r[8], r[9]), min(r[10], r[11]))
		d := min(min(r[12], r[13]), min(r[14], r[15]))
		least = min(least, min(min(a, b), min(c, d)))
	}
	return least
}
