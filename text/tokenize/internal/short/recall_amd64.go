package short

import "unsafe"

// Ask fills queries for the pieces of text from pos on that end at ends. It also asks for their cache lines, so
// that the cache misses of many pieces overlap. The branches of Recall would wait for one miss after the other.
func (p *Pieces) Ask(queries []Query, text []byte, pos int, ends []int) {
	whole := wholePieces(text, pos, ends)
	if whole > 0 {
		ask(p, &queries[:whole][0], &text[0], pos, &ends[0], whole)
		pos = ends[whole-1]
	}
	p.askEach(queries[whole:], text, pos, ends[whole:])
}

// wholePieces returns the number of pieces behind whose start there are 16 bytes of text.
func wholePieces(text []byte, pos int, ends []int) int {
	n := len(ends)
	for ; n > 0; n-- {
		start := pos
		if n > 1 {
			start = ends[n-2]
		}
		if start+16 <= len(text) {
			break
		}
	}
	return n
}

// Recall copies the tokens of pieces from number first on to found[n:], up to the first one that it does not know. It
// returns the number of that piece and the new n. found needs room for Tokens tokens of each query.
func (p *Pieces) Recall(queries []Query, first int, found []uint32, n int) (next, count int) {
	if first >= len(queries) {
		return first, n
	}
	_ = found[n : n+Tokens*(len(queries)-first)]
	return recall(p, unsafe.SliceData(queries), first, len(queries), unsafe.SliceData(found), n)
}

// ask reads 16 bytes from the start of each of n pieces.
//
//go:noescape
func ask(p *Pieces, queries *Query, text *byte, pos int, ends *int, n int)

//go:noescape
func recall(p *Pieces, queries *Query, first, end int, found *uint32, n int) (next, count int)
