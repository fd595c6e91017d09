package tokenize

import "slices"

// longWindow is how many bytes of a long piece are merged at once.
const longWindow = 1 << 12

// longMerger merges pieces of any length in windows, so that time is linear in the length and memory does not grow
// with it.
//
// Tokens are the encoding of their bytes exactly if every two neighbours are the encoding of theirs: the first merge
// across a boundary would be the first one across it in the two neighbours alone, too. So the encoding of a window may
// end at one of its tokens if that token and the first one of what follows stand side by side as they are.
type longMerger struct {
	queue mergeQueue
	room  []uint32
	both  []byte
}

// merge appends the tokens of a piece to dst.
func (m *longMerger) merge(dst []uint32, table *mergeTable, piece []byte) []uint32 {
	start := len(dst)
	for window := longWindow; ; window *= 2 {
		if tokens, ok := m.mergeWindows(dst, table, piece, window); ok {
			return tokens
		}
		dst = dst[:start]
	}
}

// mergeWindows merges window by window; ok is false where no token of a window can be its last.
func (m *longMerger) mergeWindows(dst []uint32, table *mergeTable, piece []byte, window int) (tokens []uint32, ok bool) {
	for len(piece) > window {
		start := len(dst)
		dst = m.queue.merge(dst, table, piece[:window])
		size := window
		for {
			size -= len(table.vocabulary.Token(dst[len(dst)-1]))
			dst = dst[:len(dst)-1]
			if len(dst) == start {
				return dst, false
			}
			if m.mayMeet(table, dst[len(dst)-1], piece[size:min(size+window, len(piece))]) {
				break
			}
		}
		piece = piece[size:]
	}
	return m.queue.merge(dst, table, piece), true
}

// mayMeet reports whether a token and the first token of the following bytes do not merge in any way.
func (m *longMerger) mayMeet(table *mergeTable, token uint32, following []byte) bool {
	m.room = m.queue.merge(m.room[:0], table, following)
	next := m.room[0]
	m.both = append(append(m.both[:0], table.vocabulary.Token(token)...), table.vocabulary.Token(next)...)
	m.room = m.queue.merge(m.room[:0], table, m.both)
	return slices.Equal(m.room, []uint32{token, next})
}
