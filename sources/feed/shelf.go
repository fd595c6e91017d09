package feed

import (
	"math"
	"slices"

	"millrace"
	"millrace/sources"
	"millrace/sources/feed/decode"
	"millrace/sources/order"
)

// shelfBytes bounds the tokens of a shelf.
const shelfBytes = 16 << 20

// shelf keeps documents that random-access reads made. A standby has one, and so has every feed in global order, until
// its spans hold most of the requested documents. The feed's mutex guards it.
type shelf struct {
	below     millrace.Ordinal   // no ordinal below is requested any more
	seekPoint millrace.SeekPoint // the newest known one that is not after below; block orders
	warmed    millrace.Ordinal   // the value of below at the last Warm; noEnd before
	documents map[millrace.Ordinal]document
	byAge     []millrace.Ordinal // of documents, oldest first
	size      int64              // bytes of their tokens
}

// document is the content of one ordinal: a whole document, or a piece and the token after it. It never changes.
type document struct {
	place  order.Place
	tokens []uint32
}

func newShelf(from Position) *shelf {
	return &shelf{below: from.Ordinal, seekPoint: from.SeekPoint, warmed: math.MaxUint64,
		documents: make(map[millrace.Ordinal]document)}
}

// advance drops the documents below an ordinal.
func (s *shelf) advance(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	s.below = max(s.below, below)
	if seekPoint.Ordinal > s.seekPoint.Ordinal && seekPoint.Ordinal <= s.below {
		s.seekPoint = seekPoint
	}
	s.byAge = slices.DeleteFunc(s.byAge, func(n millrace.Ordinal) bool {
		if n < s.below {
			s.forget(n)
		}
		return n < s.below
	})
}

// forget drops a document. The caller removes it from byAge.
func (s *shelf) forget(n millrace.Ordinal) {
	s.size -= 4 * int64(len(s.documents[n].tokens))
	delete(s.documents, n)
}

// isLarge reports whether a shelf does not keep a document because of its size.
func isLarge(tokens []uint32) bool { return 4*int64(len(tokens)) > shelfBytes/4 }

// put keeps a document, which the shelf owns then, and drops the oldest ones beyond its bound.
func (s *shelf) put(n millrace.Ordinal, d document) {
	if _, ok := s.documents[n]; ok || n < s.below {
		return
	}
	s.documents[n] = d
	s.byAge = append(s.byAge, n)
	for s.size += 4 * int64(len(d.tokens)); s.size > shelfBytes; s.byAge = s.byAge[1:] {
		s.forget(s.byAge[0])
	}
}

// turn admits one goroutine at a time to work that takes long. It guards no state of the feed, and no caller holds the
// feed's mutex.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }
func (t turn) pass() { <-t }

// Text keeps the text of the block that a random-access read used last. The feeds of a process share it, so a standby
// of many sources holds one text. It is safe for concurrent use.
type Text struct {
	turn turn // held for a moment
	text *decode.Text
	src  *sources.Source
	of   millrace.SeekPoint // of the block
}

// NewText returns a holder without a text.
func NewText() *Text { return &Text{turn: newTurn()} }

// set replaces the text.
func (l *Text) set(src *sources.Source, of millrace.SeekPoint, text *decode.Text) {
	l.turn.take()
	defer l.turn.pass()
	l.src, l.of, l.text = src, of, text
}

// get returns the text of a block of a source, or nil.
func (l *Text) get(src *sources.Source, of millrace.SeekPoint) *decode.Text {
	l.turn.take()
	defer l.turn.pass()
	if l.src != src || l.of != of {
		return nil
	}
	return l.text
}
