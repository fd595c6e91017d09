package charbpe

import (
	"slices"
	"unicode/utf8"

	"millrace/text/tokenize/internal/least"
)

// Merger is the memory of one goroutine for merges.
type Merger struct {
	parts []part
	heap  least.Heap // rank above the number of the left part
	next  []token
	pair  []token
}

// token is a part of a text with its id.
type token struct {
	from, to int
	id       uint32
}

// part is a token of the text that is merged. It is gone if it is empty.
type part struct {
	from, to   int
	prev, next int
	id         uint32
}

const (
	// windowMin is the length from which on a piece is merged in windows.
	windowMin = 4096
	// windowTries is the number of tokens that are tried as a window's end.
	windowTries = 16
	// partsMax bounds the parts for which a Merger keeps memory.
	partsMax = 1 << 16
)

// Append appends the ids of a piece, as [Model.Pieces] finds it.
func (w *Merger) Append(dst []uint32, m *Model, piece []byte) []uint32 {
	if m.words != nil {
		if id, whole := m.words[string(piece)]; whole {
			return append(dst, id)
		}
	}
	if len(piece) > windowMin {
		return w.appendLong(dst, m, piece)
	}
	w.next = w.merge(w.next[:0], m, piece, 0, len(piece))
	return m.write(dst, piece, w.next)
}

// appendLong merges in windows. A sequence of tokens encodes its text exactly if each two neighbours encode theirs:
// the first merge across a border would also be the first across it in those two alone. So a window may end at one of
// its last tokens, if this token and the next window's first one stay as they are side by side. Time is linear.
func (w *Merger) appendLong(dst []uint32, m *Model, piece []byte) []uint32 {
	size := windowMin
	tokens := w.merge(nil, m, piece, 0, m.windowEnd(piece, 0, size))
	for tokens[len(tokens)-1].to < len(piece) {
		kept, ok := w.meet(m, piece, tokens, size)
		if !ok {
			size *= 2
			from := tokens[0].from
			tokens = w.merge(tokens[:0], m, piece, from, m.windowEnd(piece, from, size))
			continue
		}
		dst = m.write(dst, piece, kept)
		tokens = append(tokens[:0], w.next...)
	}
	dst = m.write(dst, piece, tokens)
	if cap(w.parts) > partsMax {
		*w = Merger{}
	}
	return dst
}

// meet finds the tokens of a window that stay, and sets w.next to the tokens of the window behind them.
func (w *Merger) meet(m *Model, piece []byte, tokens []token, size int) (kept []token, ok bool) {
	for tries := 1; tries <= windowTries && tries < len(tokens); tries++ {
		kept := tokens[:len(tokens)-tries]
		left := kept[len(kept)-1]
		w.next = w.merge(w.next[:0], m, piece, left.to, m.windowEnd(piece, left.to, size))
		right := w.next[0]
		w.pair = w.merge(w.pair[:0], m, piece, left.from, right.to)
		if slices.Equal(w.pair, []token{left, right}) {
			return kept, true
		}
	}
	return nil, false
}

// windowEnd returns the end of the characters from a place on that have at least size bytes together. It does not
// divide a run that is one unk.
func (m *Model) windowEnd(text []byte, from, size int) int {
	if len(text)-from <= size {
		return len(text)
	}
	end := from + size
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	for end < len(text) && m.c.Fuse {
		left, _ := utf8.DecodeLastRune(text[:end])
		right, n := utf8.DecodeRune(text[end:])
		if m.char(left) != unknown || m.char(right) != unknown {
			break
		}
		end += n
	}
	return end
}

// merge appends the tokens of text[from:to] to dst.
func (w *Merger) merge(dst []token, m *Model, text []byte, from, to int) []token {
	w.start(m, text, from, to)
	for len(w.heap) > 0 {
		key := w.heap.Pop()
		rank, i := uint32(key>>32), int(uint32(key))
		left := &w.parts[i]
		if left.from == left.to || left.next < 0 {
			continue
		}
		right := &w.parts[left.next]
		found := m.pairs.find(left.id, right.id)
		if found.id == noToken || found.rank != rank {
			continue
		}
		left.to, left.id, left.next = right.to, found.id, right.next
		right.from = right.to
		if left.next >= 0 {
			w.parts[left.next].prev = i
		}
		if left.prev >= 0 {
			w.offer(m, left.prev)
		}
		w.offer(m, i)
	}
	for i := 0; i >= 0 && i < len(w.parts); i = w.parts[i].next {
		p := &w.parts[i]
		dst = append(dst, token{p.from, p.to, p.id})
	}
	return dst
}

// start makes every character a part, and every pair that merges a candidate.
func (w *Merger) start(m *Model, text []byte, from, to int) {
	w.parts, w.heap = w.parts[:0], w.heap[:0]
	for at := from; at < to; {
		r, n := utf8.DecodeRune(text[at:to])
		id := m.char(r)
		if last := len(w.parts) - 1; last >= 0 && id == unknown && m.c.Fuse && w.parts[last].id == unknown {
			w.parts[last].to += n
		} else {
			w.parts = append(w.parts, part{from: at, to: at + n, prev: last, next: last + 2, id: id})
		}
		at += n
	}
	if len(w.parts) > 0 {
		w.parts[len(w.parts)-1].next = -1
	}
	for i := range w.parts {
		w.offer(m, i)
	}
}

// offer adds the candidate of a part, if it merges with the next one.
func (w *Merger) offer(m *Model, i int) {
	left := &w.parts[i]
	if left.next < 0 {
		return
	}
	if found := m.pairs.find(left.id, w.parts[left.next].id); found.id != noToken {
		w.heap.Push(uint64(found.rank)<<32 | uint64(i))
	}
}

// write appends the ids of tokens.
func (m *Model) write(dst []uint32, text []byte, tokens []token) []uint32 {
	for _, t := range tokens {
		switch t.id {
		case spelt:
			for _, b := range text[t.from:t.to] {
				dst = append(dst, m.c.Bytes[b])
			}
		case unknown:
			dst = append(dst, m.c.Unk)
		default:
			dst = append(dst, t.id)
		}
	}
	return dst
}
