package tokenize

import (
	"math/bits"

	"millrace/text/tokenize/internal/least"
	"millrace/text/tokenize/internal/pairs"
)

const (
	// scanMax is the most parts that fit the bits of a word. Pieces with more are merged in windows.
	scanMax = 64
	// scanBytes is the longest piece that may have so few parts.
	scanBytes = 3 * scanMax
)

// merger encodes one piece by byte pair encoding. Of all neighbours that merge into a token, the pair of the lowest
// rank merges first, and of equals the leftmost. It repeats this until no pair merges. The merger is scratch of one
// encoder.
type merger struct {
	table   *mergeTable
	tokens  [scanMax + 2]uint32 // of part i at i+1, between two that merge with nothing
	keys    mergeKeys
	windows windows
	stride  stride
}

// merge appends the tokens of a piece to dst.
func (m *merger) merge(dst []uint32, piece []byte) []uint32 {
	if len(piece) > scanBytes {
		return m.mergeLong(dst, piece)
	}
	parts := m.start(piece)
	if parts == 0 {
		return m.mergeLong(dst, piece)
	}
	return m.mergeParts(dst, parts)
}

// mergeShort appends the tokens of a piece of at most scanMax bytes.
func (m *merger) mergeShort(dst []uint32, piece []byte) []uint32 {
	return m.mergeParts(dst, m.start(piece))
}

// mergeParts appends the tokens that `parts` parts merge into. It looks at every part for each merge.
func (m *merger) mergeParts(dst []uint32, parts int) []uint32 {
	live := uint64(2)<<(parts-1) - 1
	for {
		lowest := least.Of(m.keys[:(parts+least.Row-1)/least.Row*least.Row])
		if lowest >= noMerge {
			break
		}
		live = m.join(live, int(lowest%scanMax), lowest/scanMax)
	}
	for ; live != 0; live &= live - 1 {
		dst = append(dst, m.tokens[bits.TrailingZeros64(live)%scanMax+1])
	}
	return dst
}

// start makes every firm character and every other byte a part, and returns the number of parts. It returns 0 if there
// are more than scanMax.
func (m *merger) start(piece []byte) (parts int) {
	table := m.table
	m.tokens[0], m.tokens[scanMax+1] = pairs.NoID, pairs.NoID
	before := -1 // the byte before, if it is a part
	n := 0
	for i := 0; i < len(piece); n++ {
		if n == scanMax {
			return 0
		}
		b := piece[i]
		if b >= 0xc0 {
			if firm, bytes := table.firm.part(piece, i); bytes > 0 {
				m.tokens[n%scanMax+1] = firm
				if n > 0 {
					m.keys.set(n-1, table.Find(m.tokens[n%scanMax], firm))
				}
				before = -1
				i += bytes
				continue
			}
		}
		m.tokens[n%scanMax+1] = table.bytes[b]
		if before >= 0 {
			m.keys.set(n-1, table.starts[uint(before)%(1<<8)|uint(b)<<8])
		} else if n > 0 {
			m.keys.set(n-1, table.Find(m.tokens[n%scanMax], table.bytes[b]))
		}
		before = int(b)
		i++
	}
	*(*[least.Row]uint32)(m.keys[n-1:]) = noKeys()
	return n
}

// join merges part i with the next one into token, and returns the remaining parts.
func (m *merger) join(live uint64, i int, token uint32) uint64 {
	behind := live &^ (2<<i - 1)
	gone := bits.TrailingZeros64(behind)
	live &^= 1 << gone
	behind &= behind - 1
	after := bits.TrailingZeros64(behind)             // scanMax if there is none
	before := bits.Len64(live & (1<<(i%scanMax) - 1)) // of part before-1, or 0
	m.tokens[i%scanMax+1] = token
	m.keys.drop(gone)
	m.keys.set(i, m.table.Find(token, m.tokens[after+1]))
	m.keys.set(before-1, m.table.Find(m.tokens[before], token))
	return live
}

// mergeKeys has a key for every part: the rank of the token that it and the next part merge into, above the part's
// number. The least key is the leftmost of the lowest rank.
type mergeKeys [2 * scanMax]uint32

// noMerge is above the key of every merge.
const noMerge = 1 << (pairs.IDBits + 6)

const noKey = ^uint32(0)

// noKeys returns a row of keys that do not merge.
func noKeys() (row [least.Row]uint32) {
	for i := range row {
		row[i] = noKey
	}
	return row
}

func (k *mergeKeys) set(i int, rank uint32) {
	k[uint(i)%(2*scanMax)] = rank<<6 | uint32(i)
}

func (k *mergeKeys) drop(i int) { k[i%scanMax] = noKey }
