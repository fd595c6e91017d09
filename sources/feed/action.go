package feed

import (
	"context"

	"millrace/sources/feed/decode"
)

// action is one piece of a feed's work.
type action interface {
	// work does the piece without the feed's mutex.
	work(ctx context.Context, d *decode.Decoder) error
	// settle enters the result with the feed's mutex held. The same decoder does the returned action next, if any.
	settle() (next action, err error)
}

// signals collects the wake-ups that a change of state causes. The feed gives them when it unlocks its mutex.
type signals struct {
	idle  bool // a decoder may find an action
	news  bool // Next or Fetch may go on
	short bool // bytes were given back: feeds of the same budget may go on
}
