package decode

// Slot is one ordinal of a span: its record, and the place of its tokens. It has no pointers, because slots are many.
type Slot struct {
	Record uint64
	Shard  uint32 // or millrace.RemovedShard: the slot counts zero, and is not read
	Start  uint32 // of the ordinal's piece in its document
	Length uint32 // tokens of the document; 0 until it is known
	Part   uint32 // of the span's tokens
	Off    uint32 // in that part
	// Untrained are the labels of the ordinal that are left out of the loss, once the length is known.
	Untrained uint32
}

// Tokens returns the number of tokens of the slot's ordinal: of its piece, which has at most `piece` tokens, or of the
// whole document if piece is 0.
func (s *Slot) Tokens(piece uint32) uint32 {
	rest := s.Length - min(s.Start, s.Length)
	if piece == 0 {
		return rest
	}
	return min(rest, piece)
}

// Held returns the tokens that are kept for the slot: those of its ordinal, and one more if the document continues.
func (s *Slot) Held(piece uint32) uint32 {
	n := s.Tokens(piece)
	if n > 0 && s.Start+n < s.Length {
		n++
	}
	return n
}

// gather moves the held tokens of slots to the beginning of the document's place in buf, and forgets the other tokens.
// Slots of one document are sorted by their starts; pieces that follow each other share a token.
func (d *Decoder) gather(slots []uint32) {
	document, first := d.buf[d.before:], d.rec.Start
	at, next := uint32(0), uint32(0) // in document: the place of the last slot's start, and of the next free token
	last := first
	for k, i := range slots {
		s := &d.part.Slots[i]
		from := min(s.Start-first, uint32(len(document)))
		held := document[from:min(from+s.Held(d.piece), uint32(len(document)))]
		if gap := s.Start - last; k > 0 && at+gap < next {
			at += gap
			inPlace := min(next-at, uint32(len(held)))
			from, held = from+inPlace, held[inPlace:]
		} else {
			at = next
		}
		if next != from {
			copy(document[next:], held)
		}
		last, next = s.Start, next+uint32(len(held))
		s.Off = uint32(d.before) + at
	}
	d.buf = d.buf[:d.before+int(next)]
}
