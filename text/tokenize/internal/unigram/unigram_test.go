package unigram

import (
	"slices"
	"strings"
	"testing"

	"millrace/text/tokenize/internal/oracletest"
)

// unkPenalty is the distance of a character without a piece from the least score.
const unkPenalty = 10

func TestDividesAsTokenizers(t *testing.T) {
	var parts oracletest.Parts
	oracletest.JSON(t, "parts.json", &parts)
	c := Config{HasUnk: true, Fused: true}
	for _, p := range parts.Pieces {
		c.Pieces = append(c.Pieces, []byte(p[0].(string)))
		c.Scores = append(c.Scores, p[1].(float64))
	}
	c.UnkScore = slices.Min(c.Scores) - unkPenalty
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	var s Scratch
	for _, c := range parts.Cases {
		text := []byte(strings.ReplaceAll(c.Normal, " ", "▁"))
		var ends []int
		got := m.Append(nil, text, &ends, &s)
		if !slices.Equal(got, c.Unigram) {
			t.Errorf("%q became %v, not %v", text, got, c.Unigram)
		}
		if len(ends) != len(got) || !slices.IsSorted(ends) || len(ends) > 0 && ends[len(ends)-1] != len(text) {
			t.Errorf("the %d tokens of %q end at %v", len(got), text, ends)
		}
	}
}

func TestLongRunTakesLinearTime(t *testing.T) {
	m, err := New(Config{Pieces: [][]byte{[]byte("a"), []byte("aa"), []byte("aaaa")}, Scores: []float64{-3, -4, -5}})
	if err != nil {
		t.Fatal(err)
	}
	var s Scratch
	if got := m.Append(nil, []byte(strings.Repeat("a", 1<<20)), nil, &s); len(got) != 1<<18 {
		t.Errorf("%d tokens, not %d", len(got), 1<<18)
	}
}
