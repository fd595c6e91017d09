package incoming

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/internal/wire"
)

// encode returns the ids of a row as a reply has them.
func encode(ids []uint32, isWide bool) []byte { return wire.AppendIDs(make([]byte, 0, 1), ids, isWide) }

// TestRowsAreJoinedFromPieces: rows of both widths that are cut at any places, one behind the other.
func TestRowsAreJoinedFromPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var rows Rows
	for number := range uint32(500) {
		isWide, length := rng.IntN(2) == 0, 1+rng.IntN(40)
		ids := make([]uint32, length)
		for i := range ids {
			if ids[i] = rng.Uint32N(1 << 16); isWide {
				ids[i] = rng.Uint32() // with the bit of untrained tokens, too
			}
		}
		a := &millrace.Assignment{Segment: millrace.Segment{Length: uint32(length)}}
		if rng.IntN(2) == 0 {
			a.Length, a.More = a.Length-1, true
		}
		for from := 0; ; {
			to := from + rng.IntN(length-from+1) // a piece may be empty
			if rng.IntN(3) == 0 {
				to = length
			}
			row := &wire.Row{Number: number, Count: to - from, IsWide: isWide, IDs: encode(ids[from:to], isWide)}
			row.IsCut = to < length || rng.IntN(4) == 0
			tokens, isWhole, err := rows.Add(row, a)
			if err != nil {
				t.Fatalf("row %d, ids %d to %d of %d: %v", number, from, to, length, err)
			}
			if isWhole == row.IsCut || !isWhole && !tokens.IsNone() {
				t.Fatalf("row %d, ids %d to %d of %d: whole %t, %d tokens", number, from, to, length, isWhole,
					tokens.Len())
			}
			if from = to; !isWhole {
				continue
			}
			if tokens.IsWide() != isWide || !slices.Equal(tokens.IDs(), ids) {
				t.Fatalf("row %d is %x (wide: %t), want %x (%t)", number, tokens.IDs(), tokens.IsWide(), ids, isWide)
			}
			break
		}
	}
}

// TestAJoinedRowStays: the next row that is cut has a room of its own.
func TestAJoinedRowStays(t *testing.T) {
	var rows Rows
	join := func(number uint32, ids ...uint32) []uint32 {
		a := &millrace.Assignment{Segment: millrace.Segment{Length: uint32(len(ids))}}
		for i := range ids {
			tokens, isWhole, err := rows.Add(&wire.Row{Number: number, Count: 1, IDs: encode(ids[i:i+1], true),
				IsWide: true, IsCut: i < len(ids)-1}, a)
			if err != nil {
				t.Fatal(err)
			}
			if isWhole {
				return tokens.IDs()
			}
		}
		t.Fatalf("row %d is not whole", number)
		return nil
	}
	first := join(1, 1, 2, tokenid.Untrained|3)
	join(2, 7, 8, 9)
	if want := []uint32{1, 2, tokenid.Untrained | 3}; !slices.Equal(first, want) {
		t.Errorf("the first row has become %x", first)
	}
}

// TestARowInTheArenaHasNoTokens: they are not in the reply.
func TestARowInTheArenaHasNoTokens(t *testing.T) {
	var rows Rows
	a := &millrace.Assignment{Segment: millrace.Segment{Length: 4}}
	if tokens, isWhole, err := rows.Add(&wire.Row{Count: 4}, a); err != nil || !isWhole || !tokens.IsNone() {
		t.Errorf("whole %t, %d tokens: %v", isWhole, tokens.Len(), err)
	}
}

func TestOtherRowsAreRefused(t *testing.T) {
	a := &millrace.Assignment{Segment: millrace.Segment{Source: 1, Ordinal: 7, Offset: 5, Length: 3}}
	piece := func(number uint32, isCut, isWide bool, ids ...uint32) *wire.Row {
		return &wire.Row{Number: number, Count: len(ids), IsCut: isCut, IsWide: isWide, IDs: encode(ids, isWide)}
	}
	short := "tokens came for source 1, ordinal 7, offset 5; the plan has 3"
	instead := "row 3 came in place of the rest of row 2"
	for _, c := range []struct {
		says string
		rows []*wire.Row
	}{
		{"2 " + short, []*wire.Row{piece(2, false, false, 1, 2)}},
		{"4 " + short, []*wire.Row{piece(2, false, false, 1, 2, 3, 4)}},
		{"4 " + short, []*wire.Row{piece(2, true, false, 1, 2, 3, 4)}},
		{"2 " + short, []*wire.Row{piece(2, true, false, 1), piece(2, false, false, 2)}},
		{"4 " + short, []*wire.Row{piece(2, true, false, 1, 2), piece(2, true, false, 3, 4)}},
		{instead, []*wire.Row{piece(2, true, false, 1), piece(3, false, false, 2, 3)}},
		{instead, []*wire.Row{piece(2, true, false), piece(3, false, false, 1, 2, 3)}},
		{"row 2 goes on with ids of another width", []*wire.Row{piece(2, true, false, 1), piece(2, false, true, 2, 3)}},
		{"row 2 is cut and has no ids", []*wire.Row{{Number: 2, Count: 1, IsCut: true}}},
		{"row 2 is cut and has no ids", []*wire.Row{piece(2, true, false, 1), {Number: 2, Count: 2}}},
	} {
		var rows Rows
		var err error
		for i, row := range c.rows {
			if _, _, err = rows.Add(row, a); err != nil && i < len(c.rows)-1 {
				t.Fatalf("%s: piece %d of %d: %v", c.says, i+1, len(c.rows), err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || !errors.Is(err, millrace.ErrMismatch) {
			t.Errorf("got %v, want %q", err, c.says)
		}
	}
}
