package ledger

import (
	"encoding/binary"
	"fmt"

	"millrace/checkpoint"
	"millrace/orchestrator/planner/progress"
)

// cursor is a place in a source: a document, and the number of its tokens before the place.
type cursor struct{ ordinal, offset uint64 }

func (c cursor) before(o cursor) bool {
	return c.ordinal < o.ordinal || c.ordinal == o.ordinal && c.offset < o.offset
}

// position is the position of a source at an index entry.
//
//  1. Steps from the entry on hold nothing below low.
//  2. Steps before the entry, except the last `back` steps, hold nothing at or above drawn.
type position struct {
	low, drawn cursor // low is the low-water mark
	back       uint64
}

// EncodePositions returns the body of an index entry: the position of each source in the planner's state.
//
//	per source  ordinal and offset of its cursor, as uvarints
//	inside a window, or if segments are carried, also:
//	back        steps of the window that are sealed, as a uvarint
//	per source  how many ordinals its low-water mark is below the cursor, as a uvarint
func EncodePositions(st *progress.State) []byte {
	var out []byte
	for i := range st.Sources {
		out = binary.AppendUvarint(out, uint64(st.Sources[i].Ordinal))
		out = binary.AppendUvarint(out, uint64(st.Sources[i].Offset))
	}
	if st.Done.Steps == 0 && len(st.Carried) == 0 {
		return out
	}
	out = binary.AppendUvarint(out, uint64(st.Done.Steps))
	for i := range st.Sources {
		out = binary.AppendUvarint(out, uint64(st.Sources[i].Ordinal-st.Floor(i)))
	}
	return out
}

// decodePosition reads the position of one source from an index entry's body.
func decodePosition(body []byte, source, sources int) (position, error) {
	r := numbers{rest: body}
	var p position
	for i := range sources {
		if c := (cursor{r.next(), r.next()}); i == source {
			p.low, p.drawn = c, c
		}
	}
	if len(r.rest) > 0 {
		p.back = r.next()
		for i := range sources {
			if below := r.next(); i == source && below > 0 {
				p.low = cursor{p.low.ordinal - min(below, p.low.ordinal), 0}
			}
		}
	}
	if r.short || source >= sources {
		return position{}, fmt.Errorf("the index entry has no source %d", source)
	}
	return p, nil
}

// readPosition reads the position of one of the run's sources from a stored index entry.
func (l *Ledger) readPosition(stored checkpoint.IndexEntry, source int) (position, error) {
	p, err := decodePosition(stored.Body, source, len(l.run.Manifests))
	if err != nil {
		return p, fmt.Errorf("read index entry %s: %w: %w", stored.Key, err, checkpoint.ErrCorrupt)
	}
	return p, nil
}

// DescribeIndexEntry describes an index entry's body in words.
func DescribeIndexEntry(body []byte) string {
	r, sources := numbers{rest: body}, 0
	for ; len(r.rest) > 0 && !r.short; sources++ {
		r.next()
		r.next()
	}
	return fmt.Sprintf("positions of %d sources", sources)
}
