package unigram

import "unicode/utf8"

// spell appends the ids of a division, which is given from its end. Characters without a piece that follow each other
// are one token, or the tokens of their bytes.
func (m *Model) spell(dst []uint32, text []byte, path []uint32, ends *[]int) []uint32 {
	pos := 0
	for i := len(path) - 1; i >= 0; {
		if !m.isUnknown(path[i]) {
			pos += len(m.c.Pieces[path[i]])
			dst = append(dst, path[i])
			if ends != nil {
				*ends = append(*ends, pos)
			}
			i--
			continue
		}
		start := pos
		for ; i >= 0 && m.isUnknown(path[i]); i-- {
			if path[i] == unknown {
				_, n := utf8.DecodeRune(text[pos:])
				pos += n
			} else {
				pos += len(m.c.Pieces[path[i]])
			}
		}
		dst = m.spellUnknown(dst, text, start, pos, ends)
	}
	return dst
}

func (m *Model) isUnknown(id uint32) bool { return id == unknown || m.c.HasUnk && id == m.c.Unk }

// spellUnknown appends the ids of text[start:end], whose characters have no piece.
func (m *Model) spellUnknown(dst []uint32, text []byte, start, end int, ends *[]int) []uint32 {
	add := func(id uint32, end int) {
		dst = append(dst, id)
		if ends != nil {
			*ends = append(*ends, end)
		}
	}
	if m.c.Fused {
		if id := m.trie.Find(text[start:end]); id < unknown {
			add(id, end)
			return dst
		}
	}
	switch {
	case m.c.Bytes != nil:
		for _, b := range text[start:end] {
			add(m.c.Bytes[b], end)
		}
	case m.c.HasUnk:
		add(m.c.Unk, end)
	}
	return dst
}
