// Package incoming checks the rows of a plan that come in replies, and joins those that come in several.
package incoming

import (
	"millrace"
	"millrace/constructors"
	"millrace/internal/wire"
)

// Rows takes rows in the order of a stream of replies. The zero value is ready for use. An error is final.
type Rows struct {
	room   constructors.Room // for all ids of the row that a reply has cut; nil: the last row was whole
	number uint32            // of that row
	isWide bool              // its ids have 32 bits each
	filled int               // ids of it that have come
}

// Add takes a row of a reply, or a piece of one, for an assignment. It reports whether the row is whole now. A whole
// row that came in one reply keeps the memory of the reply. A row has no tokens if its loader wrote them to the arena.
// Add refuses a row that the plan has with another length, a row in place of the rest of one, and rest of another
// width.
func (r *Rows) Add(row *wire.Row, a *millrace.Assignment) (tokens constructors.Tokens, isWhole bool, err error) {
	if err := r.check(row, a); err != nil {
		return constructors.Tokens{}, false, err
	}
	if r.room == nil && !row.IsCut {
		return constructors.Of(row.IDs, row.IsWide), true, nil
	}
	if r.room == nil {
		*r = Rows{room: make(constructors.Room, Planned(a)), number: row.Number, isWide: row.IsWide}
	}
	r.room.Write(r.filled, row.IDs, row.IsWide)
	if r.filled += row.Count; row.IsCut {
		return constructors.Tokens{}, false, nil
	}
	tokens = r.room.Tokens(row.IsWide)
	*r = Rows{}
	return tokens, true, nil
}

func (r *Rows) check(row *wire.Row, a *millrace.Assignment) error {
	switch want, got := Planned(a), r.filled+row.Count; {
	case r.room != nil && row.Number != r.number:
		return millrace.Errorf(millrace.ErrMismatch, "row %d came in place of the rest of row %d", row.Number, r.number)
	case r.room != nil && row.IsWide != r.isWide:
		return millrace.Errorf(millrace.ErrMismatch, "row %d goes on with ids of another width", row.Number)
	case got > want || got < want && !row.IsCut:
		return millrace.Errorf(millrace.ErrMismatch,
			"%d tokens came for source %d, ordinal %d, offset %d; the plan has %d", got, a.Source, a.Ordinal, a.Offset,
			want)
	case (row.IsCut || r.room != nil) && row.IDs == nil:
		return millrace.Errorf(millrace.ErrMismatch, "row %d is cut and has no ids", row.Number)
	}
	return nil
}

// Planned returns the number of tokens of an assignment's row. The last one is a label only if the document continues.
func Planned(a *millrace.Assignment) int {
	if a.More {
		return int(a.Length) + 1
	}
	return int(a.Length)
}
