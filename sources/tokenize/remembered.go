package tokenize

const (
	// shortTokens is the most tokens of a remembered short piece. They fit half a cache line together with its key.
	shortTokens = 4
	shortSets   = 1 << 16 // of 64 bytes

	longMax    = 256 // bytes of the longest piece that is remembered
	longSlots  = 1 << 15
	longBytes  = 1 << 19
	longTokens = 1 << 18
)

// shortPieces remembers the tokens of short pieces in a cache with two places a set. A new piece takes the second
// place. It moves to the first when it comes again. So pieces that come once displace only each other.
type shortPieces [shortSets][2]shortPiece

// shortPiece is a piece and its tokens. The highest byte of the last token is their number. It is manyTokens if there
// are too many; then longPieces remembers the piece.
type shortPiece struct {
	key    key
	tokens [shortTokens]uint32
}

const (
	countShift = 24
	manyTokens = 0xff
)

// find returns the piece, or nil.
func (s *shortPieces) find(q *shortQuery) *shortPiece {
	set := &s[q.hash%shortSets]
	if set[0].key == q.key {
		return &set[0]
	}
	if set[1].key == q.key {
		set[0], set[1] = set[1], set[0]
		return &set[0]
	}
	return nil
}

// replace returns a place for the piece. The caller sets its tokens.
func (s *shortPieces) replace(q *shortQuery) *shortPiece {
	p := &s[q.hash%shortSets][1]
	*p = shortPiece{key: q.key}
	return p
}

func (p *shortPiece) set(tokens ...uint32) {
	if len(tokens) > shortTokens {
		p.tokens[shortTokens-1] = manyTokens << countShift
		return
	}
	copy(p.tokens[:], tokens)
	p.tokens[shortTokens-1] |= uint32(len(tokens)) << countShift
}

// longPieces remembers the tokens of all other pieces. Bytes and tokens go to the end of one slice each. When one is
// full, all pieces are forgotten.
type longPieces struct {
	slots  [longSlots]longSlot
	bytes  []byte   // of capacity longBytes
	tokens []uint32 // of capacity longTokens
}

type longSlot struct {
	hash     uint32
	bytesAt  uint32
	tokensAt uint32
	length   uint16
	count    uint16
}

// find returns the tokens of a piece. They are valid until the next call of remember.
func (l *longPieces) find(piece []byte, hash uint64) (tokens []uint32, ok bool) {
	slot := &l.slots[hash%longSlots]
	if slot.hash != uint32(hash>>32) || int(slot.length) != len(piece) {
		return nil, false
	}
	if string(l.bytes[slot.bytesAt:][:slot.length]) != string(piece) {
		return nil, false
	}
	return l.tokens[slot.tokensAt:][:slot.count], true
}

// remember adds a piece of at most longMax bytes.
func (l *longPieces) remember(piece []byte, hash uint64, tokens []uint32) {
	if len(l.bytes)+len(piece) > cap(l.bytes) || len(l.tokens)+len(tokens) > cap(l.tokens) {
		clear(l.slots[:])
		l.bytes, l.tokens = l.bytes[:0], l.tokens[:0]
	}
	l.slots[hash%longSlots] = longSlot{
		hash:     uint32(hash >> 32),
		bytesAt:  uint32(len(l.bytes)),
		tokensAt: uint32(len(l.tokens)),
		length:   uint16(len(piece)),
		count:    uint16(len(tokens)),
	}
	l.bytes = append(l.bytes, piece...)
	l.tokens = append(l.tokens, tokens...)
}
