// Package charsmap rewrites characters by the precompiled rules of SentencePiece, as its models and the normalizer
// Precompiled of tokenizer.json contain them.
//
// A file of rules is a double array (darts-clone) that leads from texts to offsets, behind its length, and the texts to
// write at these offsets, each with a NUL at its end. See normalizer.cc of SentencePiece 0.2.1.
package charsmap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Map is a set of rules. It never changes and is safe for concurrent use.
type Map struct {
	units []uint32
	texts []byte
	plain [utf8.RuneSelf]bool // no rule begins with this byte alone, or with it and another ASCII byte
}

// maxBytes bounds the size of the rules. Those of SentencePiece have 0.4 MB.
const maxBytes = 16 << 20

// Parse returns the rules of a blob. It keeps no reference to the blob.
func Parse(blob []byte) (*Map, error) {
	if len(blob) > maxBytes {
		return nil, fmt.Errorf("its %d bytes are more than %d", len(blob), maxBytes)
	}
	if len(blob) < 4 {
		return nil, fmt.Errorf("it has only %d bytes", len(blob))
	}
	size := binary.LittleEndian.Uint32(blob)
	rest := blob[4:]
	if uint64(size) > uint64(len(rest)) || size%4 != 0 || size == 0 {
		return nil, fmt.Errorf("its trie has %d of %d bytes", size, len(rest))
	}
	m := &Map{units: make([]uint32, size/4), texts: bytes.Clone(rest[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(rest[4*i:])
	}
	if n := len(m.texts); n == 0 || m.texts[n-1] != 0 || !utf8.Valid(m.texts) {
		return nil, errors.New("its texts are not UTF-8 with a NUL at the end of each")
	}
	for b := range m.plain {
		m.plain[b] = m.isPlain(byte(b))
	}
	return m, nil
}

// Parts of a unit of darts-clone.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
func label(unit uint32) uint32  { return unit & (1<<31 | 0xff) }
func hasLeaf(unit uint32) bool  { return unit>>8&1 == 1 }
func value(unit uint32) uint32  { return unit & (1<<31 - 1) }

// step goes from a position along a byte. next is the position behind it. ends reports whether a rule ends there.
func (m *Map) step(at uint32, b byte) (next uint32, ends, ok bool) {
	at ^= uint32(b)
	if at >= uint32(len(m.units)) {
		return 0, false, false
	}
	unit := m.units[at]
	if label(unit) != uint32(b) {
		return 0, false, false
	}
	next = at ^ offset(unit)
	return next, hasLeaf(unit) && next < uint32(len(m.units)), true
}

func (m *Map) root() uint32 { return offset(m.units[0]) }

func (m *Map) isPlain(b byte) bool {
	at, ends, ok := m.step(m.root(), b)
	if !ok {
		return true
	}
	for c := range byte(utf8.RuneSelf) {
		if _, _, ok := m.step(at, c); ok {
			return false
		}
	}
	return !ends
}

// IsPlain reports whether no rule begins with b, if an ASCII byte or the end of the text follows it. b is below 128.
func (m *Map) IsPlain(b byte) bool { return m.plain[b] }

// text returns the text to write for the rule that ends at a position.
func (m *Map) text(at uint32) ([]byte, bool) {
	from := value(m.units[at])
	if from >= uint32(len(m.texts)) {
		return nil, false
	}
	rest := m.texts[from:]
	return rest[:bytes.IndexByte(rest, 0)], true
}

// Longest returns the text to write for the longest rule that begins text, and n, the length of the rule; n is 0 if no
// rule begins text. The caller must not change the text to write.
func (m *Map) Longest(text []byte) (to []byte, n int) {
	at := m.root()
	for i, b := range text {
		next, ends, ok := m.step(at, b)
		if !ok {
			break
		}
		if at = next; ends {
			if found, ok := m.text(at); ok {
				to, n = found, i+1
			}
		}
	}
	return to, n
}

// shortest returns the text to write for the shortest rule that begins text.
func (m *Map) shortest(text []byte) (to []byte, ok bool) {
	at := m.root()
	for _, b := range text {
		if b == 0 {
			break
		}
		next, ends, ok := m.step(at, b)
		if !ok {
			break
		}
		if at = next; ends {
			return m.text(at)
		}
	}
	return nil, false
}
