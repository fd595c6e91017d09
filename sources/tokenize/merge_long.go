package tokenize

import "slices"

// windows is the scratch for pieces longer than scanMax.
//
// Tokens are the encoding of their bytes exactly if every two neighbours are the encoding of theirs: the first merge
// across a boundary would be the first one across it in those two alone, too. So a long piece is merged window by
// window; a window's encoding may end at one of its tokens if this and the first one of the window that starts there
// stand side by side as they are. Time is linear in the length, and memory does not grow with it: the window is doubled
// only where none of its last tokens will do.
type windows struct {
	queue mergeQueue
	next  []uint32
	pair  []uint32
	bytes []byte
}

// windowTries is how many tokens at a window's end are tried: it bounds the work on a piece made to have no good end.
const windowTries = 16

// mergeLong appends the tokens of a piece of any length to dst.
func (m *merger) mergeLong(dst []uint32, piece []byte) []uint32 {
	start := len(dst)
	for window := scanMax; ; window *= 2 {
		if tokens, ok := m.mergeWindows(dst[:start], piece, window); ok {
			return tokens
		}
	}
}

// mergeWindows merges in windows of a size; ok is false where none of a window's last tokens can end it.
func (m *merger) mergeWindows(dst []uint32, piece []byte, window int) (tokens []uint32, ok bool) {
	first := len(dst) // the current window's first token
	end := min(window, len(piece))
	dst = m.mergeWindow(dst, piece[:end])
	for end < len(piece) {
		from := end
		for tries := 0; ; tries++ {
			last := len(dst) - 1
			if last == first || tries == windowTries {
				return dst, false
			}
			from -= len(m.table.vocabulary.Token(dst[last]))
			dst = dst[:last]
			end = min(from+window, len(piece))
			m.windows.next = m.mergeWindow(m.windows.next[:0], piece[from:end])
			if m.mayMeet(dst[last-1], m.windows.next[0]) {
				break
			}
		}
		first = len(dst)
		dst = append(dst, m.windows.next...)
	}
	return dst, true
}

func (m *merger) mergeWindow(dst []uint32, window []byte) []uint32 {
	m.stride.went(len(window))
	if len(window) > scanMax {
		return m.windows.queue.merge(dst, m.table, window, &m.stride)
	}
	return m.mergeShort(dst, window)
}

// mayMeet reports whether two tokens side by side stay as they are.
func (m *merger) mayMeet(left, right uint32) bool {
	w, v := &m.windows, m.table.vocabulary
	w.bytes = append(append(w.bytes[:0], v.Token(left)...), v.Token(right)...)
	w.pair = m.mergeWindow(w.pair[:0], w.bytes)
	return slices.Equal(w.pair, []uint32{left, right})
}
