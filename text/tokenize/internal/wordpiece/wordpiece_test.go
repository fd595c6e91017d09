package wordpiece

import (
	"slices"
	"testing"

	"millrace/text/tokenize/internal/oracletest"
)

func TestDividesAsTokenizers(t *testing.T) {
	var parts oracletest.Parts
	oracletest.JSON(t, "parts.json", &parts)
	pieces := make([][]byte, len(parts.Words))
	for i, word := range parts.Words {
		pieces[i] = []byte(word)
	}
	m := New(pieces, "##", 0, 20)
	for _, c := range parts.Cases {
		if got := m.Append(nil, []byte(c.Word), nil); !slices.Equal(got, c.WordPiece) {
			t.Errorf("%q became %v, not %v", c.Word, got, c.WordPiece)
		}
	}
}

func TestEndsOfPieces(t *testing.T) {
	m := New([][]byte{[]byte("?"), []byte("un"), []byte("##aff"), []byte("##able"), []byte("##a")}, "##", 0, 10)
	for word, want := range map[string][]int{"unaffable": {2, 5, 9}, "unaffably": {9}, "unaaaaaaaaaaaa": {14}} {
		var ends []int
		m.Append(nil, []byte(word), &ends)
		if !slices.Equal(ends, want) {
			t.Errorf("the pieces of %s end at %v, not %v", word, ends, want)
		}
	}
}
