//go:build !amd64

package short

// Ask fills queries for the pieces of text from pos on that end at ends. It also asks for their cache lines, so
// that the cache misses of many pieces overlap. The branches of Recall would wait for one miss after the other.
func (p *Pieces) Ask(queries []Query, text []byte, pos int, ends []int) {
	if len(ends) == 0 {
		return
	}
	p.askEach(queries, text, pos, ends)
	prefetch(&p.sets[0], p.mask, &queries[0], len(ends))
}

// Recall copies the tokens of pieces from number first on to found[n:], up to the first one that it does not know. It
// returns the number of that piece and the new n. found needs room for Tokens tokens of each query.
func (p *Pieces) Recall(queries []Query, first int, found []uint32, n int) (next, count int) {
	return p.recallEach(queries, first, found, n)
}
