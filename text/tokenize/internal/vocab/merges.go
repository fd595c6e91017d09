package vocab

import (
	"bytes"
	"fmt"
)

// deriveWork bounds the time that the tokens of a hostile file cost: the sum of the squares of their lengths. Real
// vocabularies need a tenth of it.
const deriveWork = 1 << 27

// Merge is a pair of tokens that merges into the token ID.
type Merge struct{ Left, Right, ID uint32 }

// FromMerges returns the vocabulary with the bytes of each id, and with the merges of tokenizer.json in their order. An
// empty entry is an unused id. whole: a piece that spells a token is this token, whether merges make it or not
// (ignore_merges).
//
// Merges must be in the order of their ids. Then the order of merges is the order of ids: of several merges for one
// token, only the pair of which the token's own bytes consist before this merge can meet in a text.
func FromMerges(tokens [][]byte, merges []Merge, whole bool) (*Vocabulary, error) {
	work := 0
	for id, token := range tokens {
		if work += len(token) * len(token); work > deriveWork || len(token) > 1<<15 {
			return nil, fmt.Errorf("build vocabulary: the tokens up to id %d are too long", id)
		}
	}
	v, err := spell(tokens)
	if err != nil {
		return nil, err
	}
	v.merged = !whole
	listed := make(map[[2]uint32]uint32, len(merges))
	last := uint32(0)
	for i, m := range merges {
		left, right := v.Token(m.Left), v.Token(m.Right)
		token := v.Token(m.ID)
		switch {
		case len(left) == 0 || len(right) == 0 || !isJoined(token, left, right):
			return nil, fmt.Errorf("build vocabulary: merge %d joins %q and %q, which is not token %d, %q",
				i, left, right, m.ID, token)
		case m.ID < last:
			return nil, fmt.Errorf("build vocabulary: merge %d makes token %d after token %d, "+
				"and only merges in the order of their ids can be followed", i, m.ID, last)
		}
		last = m.ID
		listed[[2]uint32{m.Left, m.Right}] = m.ID + 1
	}
	v.derivePairs(listed)
	return v, nil
}

// isJoined reports whether a token is two others, one behind the other.
func isJoined(token, left, right []byte) bool {
	return len(token) == len(left)+len(right) && bytes.HasPrefix(token, left) && bytes.HasSuffix(token, right)
}
