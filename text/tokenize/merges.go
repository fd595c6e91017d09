package tokenize

import (
	"millrace/text/tokenize/internal/pairs"
	"millrace/text/tokenize/internal/shared"
	"millrace/text/tokenize/internal/vocab"
)

// mergeTable has the merges of a vocabulary.
type mergeTable struct {
	*pairs.Table
	vocabulary *vocab.Vocabulary
	bytes      [256]uint32 // the token of a byte
	firm       *firmTable
	// the token that two single bytes merge into, or noToken: the first round needs no probing
	starts *[1 << 16]uint32
}

func newMergeTable(v *vocab.Vocabulary) *mergeTable {
	m := &mergeTable{Table: pairs.New(v), vocabulary: v, firm: new(firmTable), starts: new([1 << 16]uint32)}
	for b := range m.bytes {
		m.bytes[b] = v.Byte(byte(b))
	}
	for i := range m.starts {
		m.starts[i] = m.Find(m.bytes[i&0xff], m.bytes[i>>8])
	}
	m.firm.fill(m)
	return m
}

// tables returns the tables that never change.
func (m *mergeTable) tables() []shared.Table {
	return append(m.Tables(), shared.At(&m.firm), shared.At(&m.starts))
}

// firmTable has the firm characters of two and three bytes. A character is firm if its bytes, wherever they are, become
// one token before any of them merges with a neighbour, and the token then waits for all merges of lower rank. So a
// piece encodes to the same tokens if its firm characters are single parts from the start.
//
// The condition: the bytes alone merge into one token. R is the highest rank of these merges. Every merge across an end
// of the character has a higher rank than R, for every part that is at that end on the way and for the token itself.
// While the character is incomplete, its own next merge has rank R at most, so no other merge can take its bytes. Until
// all merges up to R have happened elsewhere, the token does not merge.
//
// An entry is the token with firmInside, firmBehindASCII or both. 0 is no firm character.
type firmTable struct {
	two   [1 << 11]uint32
	three [1 << 16]uint32
}

const (
	firmInside      = 1 << 30 // at the start of a piece and behind a byte beyond ASCII
	firmBehindASCII = 1 << 31
)

func isContinuation(b byte) bool { return b&0xc0 == 0x80 }

// part returns the firm character at piece[i] as a token, with its number of bytes. The number is 0 without one.
func (f *firmTable) part(piece []byte, i int) (token uint32, size int) {
	rest := piece[i:]
	var entry uint32
	switch {
	case len(rest) >= 3 && rest[0]&0xf0 == 0xe0 && isContinuation(rest[1]) && isContinuation(rest[2]):
		entry, size = f.three[uint16(rest[0])<<12|uint16(rest[1]&0x3f)<<6|uint16(rest[2]&0x3f)], 3
	case len(rest) >= 2 && rest[0]&0xe0 == 0xc0 && isContinuation(rest[1]):
		entry, size = f.two[uint16(rest[0]&0x1f)<<6|uint16(rest[1]&0x3f)], 2
	}
	need := uint32(firmInside)
	if i > 0 && piece[i-1] < 0x80 {
		need = firmBehindASCII
	}
	if entry&need == 0 || len(rest) > size && isContinuation(rest[size]) {
		return 0, 0
	}
	return entry &^ (firmInside | firmBehindASCII), size
}

func (f *firmTable) fill(m *mergeTable) {
	c := newCrossings(m.vocabulary)
	for id := range uint32(m.vocabulary.Len()) {
		t := m.vocabulary.Token(id)
		switch {
		case len(t) == 3 && t[0]&0xf0 == 0xe0 && isContinuation(t[1]) && isContinuation(t[2]):
			f.three[uint16(t[0])<<12|uint16(t[1]&0x3f)<<6|uint16(t[2]&0x3f)] = c.entry(m, id, t)
		case len(t) == 2 && t[0]&0xe0 == 0xc0 && isContinuation(t[1]):
			f.two[uint16(t[0]&0x1f)<<6|uint16(t[1]&0x3f)] = c.entry(m, id, t)
		}
	}
}

// crossings has, for each token, the lowest rank of its merges with a token before it, by the last byte of that one,
// and with a token behind it. Tokens behind that begin inside a character do not count.
type crossings struct{ behindASCII, inside, before []uint32 }

func newCrossings(v *vocab.Vocabulary) *crossings {
	n := v.Len()
	c := &crossings{make([]uint32, n), make([]uint32, n), make([]uint32, n)}
	for id := range c.inside {
		c.behindASCII[id], c.inside[id], c.before[id] = noToken, noToken, noToken
	}
	for id := range uint32(n) {
		left, right, ok := v.Pair(id)
		if !ok {
			continue
		}
		if text := v.Token(left); text[len(text)-1] < 0x80 {
			c.behindASCII[right] = min(c.behindASCII[right], id)
		} else {
			c.inside[right] = min(c.inside[right], id)
		}
		if !isContinuation(v.Token(right)[0]) {
			c.before[left] = min(c.before[left], id)
		}
	}
	return c
}

// entry returns the entry of the character that a token spells.
func (c *crossings) entry(m *mergeTable, id uint32, text []byte) uint32 {
	parts := make([]uint32, len(text))
	for i, b := range text {
		parts[i] = m.bytes[b]
	}
	highest, inside, behindASCII, before := uint32(0), noToken, noToken, noToken
	for {
		first, last := parts[0], parts[len(parts)-1]
		inside, behindASCII = min(inside, c.inside[first]), min(behindASCII, c.behindASCII[first])
		before = min(before, c.before[last])
		if len(parts) == 1 {
			break
		}
		at, rank := -1, noToken
		for i := range len(parts) - 1 {
			if r := m.Find(parts[i], parts[i+1]); r < rank {
				at, rank = i, r
			}
		}
		if at < 0 {
			return 0
		}
		highest = max(highest, rank)
		parts[at] = rank
		parts = append(parts[:at+1], parts[at+2:]...)
	}
	entry := id
	if parts[0] != id || before <= highest {
		return 0
	}
	if inside > highest {
		entry |= firmInside
	}
	if behindASCII > highest {
		entry |= firmBehindASCII
	}
	if entry == id {
		return 0
	}
	return entry
}
