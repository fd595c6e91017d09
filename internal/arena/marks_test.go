package arena_test

import (
	"testing"

	"millrace/internal/arena"
)

// TestOnlyCompleteRowsAreMarked: a row without a mark, a shorter one and one with another token are not complete.
func TestOnlyCompleteRowsAreMarked(t *testing.T) {
	a, err := arena.Host{}.Create(arena.Room(9, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	m := arena.MarksOf(a.Tokens, 9, 3)
	if len(m) != 3 || arena.MarksOf(a.Tokens[:arena.Room(9, 3)-1], 9, 3) != nil || arena.MarksOf(nil, 0, 0) != nil {
		t.Fatalf("%d marks", len(m))
	}
	if m.Has(0, a.Tokens[0:0]) || m.Has(1, a.Tokens[2:5]) {
		t.Error("a row is complete before the writer has marked it")
	}
	copy(a.Tokens, []uint32{0, 0, 7, 8, 9})
	m.Set(0, a.Tokens[0:0])
	m.Set(1, a.Tokens[2:5])
	if !m.Has(0, nil) || !m.Has(1, a.Tokens[2:5]) {
		t.Error("a marked row is not complete")
	}
	if m.Has(1, a.Tokens[2:4]) || m.Has(2, a.Tokens[5:7]) {
		t.Error("a row of another length is complete")
	}
	if a.Tokens[4] = 10; m.Has(1, a.Tokens[2:5]) {
		t.Error("a row with another token is complete")
	}
	if m.Clear(); m.Has(0, nil) || a.Tokens[4] != 10 {
		t.Error("clearing keeps a mark, or changes a token")
	}
}
