package sentencepiece

import (
	"slices"

	"millrace/text/tokenize/internal/least"
)

// Merger is the memory of one goroutine for merges.
type Merger struct {
	parts []part
	heap  least.Heap // rank above the number of the left part
	next  windowParts
	pair  windowParts
	split map[string]int // of an unused piece's text: the length of its left part
}

// windowParts are the tokens of a window.
type windowParts []token

// token is a part of a text with the id of its piece, or noToken.
type token struct {
	from, to int
	id       uint32
}

// part is a symbol of the text that is merged. It is gone if it is empty.
type part struct {
	from, to   int
	prev, next int
	id         uint32
	frozen     bool
}

const (
	// windowMin is the length from which on a piece is merged in windows.
	windowMin = 4096
	// windowTries is the number of tokens that are tried as a window's end.
	windowTries = 16
	// partsMax bounds the parts for which a Merger keeps memory.
	partsMax = 1 << 16
)

// Append appends the ids of a piece of a normalised text, as [Model.Pieces] finds it.
func (w *Merger) Append(dst []uint32, m *Model, piece []byte) []uint32 {
	if len(piece) <= windowMin || m.bpe.splits {
		for _, t := range w.merge(w.next[:0], m, piece, 0, len(piece)) {
			dst = w.write(dst, m, piece, t)
		}
		if len(w.parts) > partsMax {
			*w = Merger{}
		}
		return dst
	}
	return w.appendLong(dst, m, piece)
}

// appendLong merges in windows. A sequence of tokens encodes its text exactly if each two neighbours encode theirs:
// the first merge across a border would also be the first across it in those two alone. So a window may end at one of
// its last tokens, if this token and the next window's first one stay as they are side by side. Time is linear.
func (w *Merger) appendLong(dst []uint32, m *Model, piece []byte) []uint32 {
	size := windowMin
	tokens := w.merge(nil, m, piece, 0, m.windowEnd(piece, 0, size))
	for tokens[len(tokens)-1].to < len(piece) {
		kept, next, ok := w.meet(m, piece, tokens, size)
		if !ok {
			size *= 2
			from := tokens[0].from
			tokens = w.merge(tokens[:0], m, piece, from, m.windowEnd(piece, from, size))
			continue
		}
		for _, t := range kept {
			dst = w.write(dst, m, piece, t)
		}
		tokens = append(tokens[:0], next...)
	}
	for _, t := range tokens {
		dst = w.write(dst, m, piece, t)
	}
	return dst
}

// meet finds the tokens of a window that stay, and the tokens of the window behind them.
func (w *Merger) meet(m *Model, piece []byte, tokens []token, size int) (kept, next []token, ok bool) {
	for tries := 1; tries <= windowTries && tries < len(tokens); tries++ {
		kept := tokens[:len(tokens)-tries]
		from := kept[len(kept)-1].to
		w.next = w.merge(w.next[:0], m, piece, from, m.windowEnd(piece, from, size))
		left, right := kept[len(kept)-1], w.next[0]
		w.pair = w.merge(w.pair[:0], m, piece, left.from, right.to)
		if slices.Equal(w.pair, windowParts{left, right}) {
			return kept, w.next, true
		}
	}
	return nil, nil, false
}

// windowEnd returns the end of the symbols from a place on that have at least size bytes together.
func (m *Model) windowEnd(text []byte, from, size int) int {
	end := from
	for end < len(text) && end-from < size {
		n, _ := m.next(text[end:])
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
		if left.frozen || right.frozen {
			continue
		}
		id := m.find(text[left.from:right.to])
		if id == noToken || m.bpe.ranks[id] != rank {
			continue
		}
		left.to, left.id, left.next = right.to, id, right.next
		right.from = right.to
		if left.next >= 0 {
			w.parts[left.next].prev = i
		}
		if left.prev >= 0 {
			w.offer(m, text, left.prev)
		}
		w.offer(m, text, i)
	}
	for i := 0; i >= 0 && i < len(w.parts); i = w.parts[i].next {
		p := &w.parts[i]
		if p.id == noToken {
			p.id = m.find(text[p.from:p.to])
		}
		dst = append(dst, token{p.from, p.to, p.id})
	}
	return dst
}

// start makes every symbol a part, and every pair that merges a candidate.
func (w *Merger) start(m *Model, text []byte, from, to int) {
	w.parts, w.heap = w.parts[:0], w.heap[:0]
	if m.bpe.splits {
		w.split = map[string]int{}
	}
	for at := from; at < to; {
		n, frozen := m.next(text[at:to])
		w.parts = append(w.parts, part{from: at, to: at + n, prev: len(w.parts) - 1, next: len(w.parts) + 1,
			id: noToken, frozen: frozen})
		at += n
	}
	if len(w.parts) > 0 {
		w.parts[len(w.parts)-1].next = -1
	}
	for i := range w.parts {
		w.offer(m, text, i)
	}
}

// offer adds the candidate of a part, if it merges with the next one.
func (w *Merger) offer(m *Model, text []byte, i int) {
	left := &w.parts[i]
	if left.next < 0 || left.frozen || w.parts[left.next].frozen {
		return
	}
	whole := text[left.from:w.parts[left.next].to]
	id := m.find(whole)
	if id == noToken || m.proto.kind == charKind {
		return
	}
	if m.proto.pieces[id].kind == unused {
		w.split[string(whole)] = left.to - left.from
	}
	w.heap.Push(uint64(m.bpe.ranks[id])<<32 | uint64(i))
}

// write appends the ids of a token. An unused piece is divided as it was merged last.
func (w *Merger) write(dst []uint32, m *Model, text []byte, t token) []uint32 {
	whole := text[t.from:t.to]
	if t.id != noToken && m.proto.pieces[m.bpe.final[t.id]].kind == unused {
		if n, ok := w.split[string(whole)]; ok {
			dst = w.write(dst, m, text, token{t.from, t.from + n, m.find(whole[:n])})
			return w.write(dst, m, text, token{t.from + n, t.to, m.find(whole[n:])})
		}
	}
	return m.spell(dst, whole, t.id)
}
