package tokenize

import "slices"

// windows is the scratch for pieces longer than scanMax.
//
// A sequence of tokens encodes its bytes exactly if each two neighbours encode theirs. The reason: the first merge
// across a boundary would also be the first across it in those two alone. So a long piece is merged window by window. A
// window may end at one of its tokens if this token and the next window's first token stay as they are side by side.
// Time is linear in the length, and memory is constant. The window doubles only if none of its last tokens can end it.
type windows struct {
	queue mergeQueue
	next  []uint32
	pair  []uint32
	bytes []byte
}

// windowTries is the number of tokens that are tried as a window's end. It bounds the work on a hostile piece without a
// good end.
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

// mergeWindows merges in windows of a size. ok is false if none of a window's last tokens can end it.
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
