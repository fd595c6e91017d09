package sentencepiece

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace/sources/tokenize/internal/vocab"
)

// listed returns a model of random merges over a few characters, in a random order.
func listed(t *testing.T, r *rand.Rand) (*Model, []vocab.Merge) {
	from := Merges{Unk: "<unk>"}
	for _, text := range []string{from.Unk, "a", "b", "ä", space} {
		from.Tokens = append(from.Tokens, []byte(text))
	}
	byText := map[string]uint32{}
	for id, text := range from.Tokens {
		byText[string(text)] = uint32(id)
	}
	for range 40 {
		left, right := 1+r.IntN(len(from.Tokens)-1), 1+r.IntN(len(from.Tokens)-1)
		text := string(from.Tokens[left]) + string(from.Tokens[right])
		if len(text) > 24 {
			continue
		}
		id, isThere := byText[text]
		if !isThere {
			id = uint32(len(from.Tokens))
			byText[text], from.Tokens = id, append(from.Tokens, []byte(text))
		}
		from.List = append(from.List, vocab.Merge{Left: uint32(left), Right: uint32(right), ID: id})
	}
	r.Shuffle(len(from.List), func(i, j int) { from.List[i], from.List[j] = from.List[j], from.List[i] })
	for b := range 256 {
		from.Tokens = append(from.Tokens, fmt.Appendf(nil, "<0x%02X>", b))
	}
	m, err := FromMerges(from)
	if err != nil {
		t.Fatal(err)
	}
	return m, from.List
}

// dumb merges the pair of the lowest rank, and of equals the leftmost, until no pair has a merge.
func dumb(m *Model, merges []vocab.Merge, text string) []uint32 {
	var ids []uint32
	for _, char := range text {
		if id := m.find([]byte(string(char))); id != noToken {
			ids = append(ids, id)
			continue
		}
		for _, b := range []byte(string(char)) {
			ids = append(ids, m.bytes[b])
		}
	}
	ranks := map[[2]uint32]int{}
	for rank, merge := range merges {
		ranks[[2]uint32{merge.Left, merge.Right}] = rank
	}
	for {
		at, least := -1, len(merges)
		for i := range len(ids) - 1 {
			if rank, ok := ranks[[2]uint32{ids[i], ids[i+1]}]; ok && rank < least {
				at, least = i, rank
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, merges[least].ID)
	}
}

// TestListedMerges: pieces, windows and the heap give the ids of the dumb version.
func TestListedMerges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		m, merges := listed(t, r)
		for _, length := range []int{1, 2, 7, 60, 900} {
			var text []rune
			for range length {
				text = append(text, []rune("aaabbä \u00e9")[r.IntN(8)])
			}
			normal := m.Normalize(nil, []byte(string(text)), true)
			if got, want := encode(m, string(text)), dumb(m, merges, string(normal)); !slices.Equal(got, want) {
				t.Fatalf("%q: got %d, want %d", normal, got, want)
			}
		}
	}
}

// TestLongRunsOfListedMerges: a run that is merged in windows has the tokens of one piece.
func TestLongRunsOfListedMerges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		m, _ := listed(t, r)
		var text []byte
		for len(text) < 5*windowMin {
			text = append(text, "aab"[r.IntN(3)])
		}
		for _, piece := range [][]byte{text, slices.Repeat([]byte("a"), 5*windowMin)} {
			var w Merger
			var want []uint32
			for _, t := range w.merge(nil, m, piece, 0, len(piece)) {
				want = append(want, t.id)
			}
			if got := new(Merger).appendLong(nil, m, piece); !slices.Equal(got, want) {
				t.Fatalf("%.40q: %d tokens in windows, and %d as one piece", piece, len(got), len(want))
			}
		}
	}
}

func TestRefusesWrongMerges(t *testing.T) {
	tokens := [][]byte{[]byte("<unk>"), []byte("a"), []byte("aa")}
	for b := range 256 {
		tokens = append(tokens, fmt.Appendf(nil, "<0x%02X>", b))
	}
	for _, c := range []struct {
		merge  vocab.Merge
		tokens int
	}{
		{vocab.Merge{Left: 1, Right: 2, ID: 2}, len(tokens)}, // a and aa are not aa
		{vocab.Merge{Left: 1, Right: 0, ID: 2}, len(tokens)},
		{vocab.Merge{Left: 3, Right: 4, ID: 2}, len(tokens)},
		{vocab.Merge{Left: 1, Right: 1, ID: 2}, len(tokens) - 1}, // a byte is missing
	} {
		from := Merges{Tokens: tokens[:c.tokens], Unk: "<unk>", List: []vocab.Merge{c.merge}}
		if _, err := FromMerges(from); err == nil {
			t.Errorf("%+v of %d tokens is accepted", c.merge, c.tokens)
		}
	}
}
