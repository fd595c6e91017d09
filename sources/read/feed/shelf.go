package feed

import (
	"math"

	"millrace"
	"millrace/sources/read/feed/recent"
)

// shelf is a feed's part of the documents that random-access reads made. A standby has one, and so has every feed in
// global order, until its spans hold most of the requested documents. The feed's mutex guards it.
type shelf struct {
	recent    *recent.Store      // has the documents
	below     millrace.Ordinal   // no ordinal below is requested any more
	seekPoint millrace.SeekPoint // the newest known one that is not after below; block orders
	warmed    millrace.Ordinal   // the value of below at the last Warm; noEnd before
}

func newShelf(from Position, recent *recent.Store) *shelf {
	return &shelf{recent: recent, below: from.Ordinal, seekPoint: from.SeekPoint, warmed: math.MaxUint64}
}

// advance drops the documents below an ordinal.
func (s *shelf) advance(below millrace.Ordinal, seekPoint millrace.SeekPoint) {
	s.below = max(s.below, below)
	if seekPoint.Ordinal > s.seekPoint.Ordinal && seekPoint.Ordinal <= s.below {
		s.seekPoint = seekPoint
	}
	s.recent.Release(s, s.below)
}

// clear drops all documents.
func (s *shelf) clear() { s.recent.Release(s, math.MaxUint64) }

// put keeps a copy of a document, if there is room.
func (s *shelf) put(n millrace.Ordinal, d recent.Document) {
	if n >= s.below {
		s.recent.Put(s, n, d)
	}
}

// turn admits one goroutine at a time to work that takes long. It guards no state of the feed, and no caller holds the
// feed's mutex.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take() { t <- struct{}{} }
func (t turn) pass() { <-t }
