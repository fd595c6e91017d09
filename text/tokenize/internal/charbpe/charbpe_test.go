package charbpe

import (
	"bytes"
	"slices"
	"testing"
)

// model has the merges of runs of "a", of "ab", and unk for other characters.
func model(t testing.TB, fuse bool) *Model {
	t.Helper()
	var c Config
	for _, token := range []string{"<unk>", "a", "b", "aa", "aaaa", "ab", "é", "éa"} {
		c.Tokens = append(c.Tokens, []byte(token))
	}
	c.Merges = []Merge{{1, 1, 3}, {3, 3, 4}, {1, 2, 5}, {6, 1, 7}}
	c.Fuse = fuse
	m, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func encode(m *Model, text []byte) []uint32 {
	var ids []uint32
	var w Merger
	var ends [3]int
	for pos := 0; pos < len(text); {
		n := m.Pieces(text, pos, ends[:])
		for _, end := range ends[:n] {
			ids = w.Append(ids, m, text[pos:end])
			pos = end
		}
	}
	return ids
}

func TestMergesInTheirOrder(t *testing.T) {
	for text, want := range map[string][]uint32{
		"aab": {3, 2}, "ab": {5}, "éaab": {6, 3, 2}, "éab": {6, 5}, "éa": {7}, "xxaxx": {0, 1, 0}, "aaaaaaa": {4, 3, 1},
	} {
		if got := encode(model(t, true), []byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q became %v, not %v", text, got, want)
		}
	}
	if got := encode(model(t, false), []byte("xxa")); !slices.Equal(got, []uint32{0, 0, 1}) {
		t.Errorf("two characters without a token became %v", got)
	}
}

func TestWindowsMergeAsOnePiece(t *testing.T) {
	m := model(t, true)
	for _, unit := range []string{"a", "aab", "éaaa", "x", "xxaéb", "aaaaa\u4e2d\u6587"} {
		text := bytes.Repeat([]byte(unit), 20_001)
		var w Merger
		got := encode(m, text)
		if want := m.write(nil, text, w.merge(nil, m, text, 0, len(text))); !slices.Equal(got, want) {
			t.Errorf("%q: windows give %d tokens, and one piece %d", unit, len(got), len(want))
		}
	}
}

func TestReservedTokensDoNotMerge(t *testing.T) {
	tokens := [][]byte{[]byte("u"), []byte("a"), []byte("ua")}
	if _, err := New(Config{Tokens: tokens, Merges: []Merge{{0, 1, 2}}}); err == nil {
		t.Error("a merge of unk is accepted")
	}
}
