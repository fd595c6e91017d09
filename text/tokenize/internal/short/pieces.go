package short

import (
	"unsafe"

	"millrace/text/tokenize/internal/pages"
)

// Tokens is the most tokens of a remembered piece. They fit half a cache line together with its key.
const Tokens = 4

// SetBytes is the size of a set.
const SetBytes = int64(unsafe.Sizeof(set{}))

// Pieces remembers the tokens of short pieces in a cache with two places a set. A new piece takes the second
// place. It moves to the first when it comes again. So pieces that come once displace only each other.
type Pieces struct {
	sets  []set // a power of two of them, each a cache line
	mask  uint64
	masks keyMasks
}

type set [2]Piece

// Piece is a piece and its tokens. The highest byte of the last token is their number. It is manyTokens if there are
// too many.
type Piece struct {
	key    Key
	tokens [Tokens]uint32
}

const (
	countShift = 24
	manyTokens = 0xff
)

// New returns an empty cache with a number of sets, which is a power of two.
func New(sets int) Pieces {
	p := Pieces{sets: make([]set, sets), mask: uint64(sets - 1), masks: newKeyMasks()}
	pages.Huge(unsafe.Pointer(&p.sets[0]), uintptr(sets)*uintptr(SetBytes))
	return p
}

// Bytes returns the size of the cache.
func (p *Pieces) Bytes() int64 { return int64(len(p.sets)) * SetBytes }

// Has reports whether the piece is remembered.
func (p *Pieces) Has(q *Query) bool {
	set := &p.sets[q.Hash&p.mask]
	return set[0].key == q.Key || set[1].key == q.Key
}

// Remember remembers a piece that is not remembered yet. It reports whether its tokens are few enough for Recall. The
// tokens of other pieces are forgotten, but not the pieces.
func (p *Pieces) Remember(q *Query, tokens []uint32) bool {
	piece := &p.sets[q.Hash&p.mask][1]
	*piece = Piece{key: q.Key}
	if len(tokens) > Tokens {
		piece.tokens[Tokens-1] = manyTokens << countShift
		return false
	}
	copy(piece.tokens[:], tokens)
	piece.tokens[Tokens-1] |= uint32(len(tokens)) << countShift
	return true
}

// askEach is ask for texts of any length.
func (p *Pieces) askEach(queries []Query, text []byte, pos int, ends []int) {
	for i, end := range ends {
		q := &queries[i]
		if piece := text[pos:end]; len(piece) <= Max {
			q.Key = KeyOf(piece)
		} else {
			q.Key = Key{Hi: longKey}
		}
		q.Hash = q.Key.Hash()
		pos = end
	}
}

// recallEach is recall for one piece after the other.
func (p *Pieces) recallEach(queries []Query, first int, found []uint32, n int) (next, count int) {
	for i := first; i < len(queries); i++ {
		q := &queries[i]
		set := &p.sets[q.Hash&p.mask]
		if set[0].key != q.Key {
			if set[1].key != q.Key {
				return i, n
			}
			set[0], set[1] = set[1], set[0]
		}
		t := &set[0].tokens
		last := t[Tokens-1]
		if last>>countShift > Tokens {
			return i, n
		}
		to := (*[Tokens]uint32)(found[n:])
		to[0], to[1], to[2], to[3] = t[0], t[1], t[2], last%(1<<countShift)
		n += int(last >> countShift)
	}
	return len(queries), n
}
