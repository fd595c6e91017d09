package short

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// pieces returns a text and the ends of random pieces of it, long and short ones. Few words are frequent.
func pieces(r *rand.Rand, n int) (text []byte, ends []int) {
	for range n {
		length := 1 + r.IntN(1+r.IntN(24))
		word := byte(r.IntN(1 + r.IntN(250)))
		for i := range length {
			text = append(text, word+byte(i))
		}
		ends = append(ends, len(text))
	}
	return text, ends
}

// TestBothWaysAgree: with vectors and without, texts have the same keys and hashes, recall has the same tokens, and the
// places of pieces change alike.
func TestBothWaysAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	fast, slow := New(64), New(64)
	long, second, refused := 0, 0, 0
	for range 3000 {
		text, ends := pieces(r, r.IntN(60))
		from := r.IntN(len(ends) + 1)
		pos := 0
		if from > 0 {
			pos = ends[from-1]
		}
		queries, want := make([]Query, len(ends)-from), make([]Query, len(ends)-from)
		fast.Ask(queries, text, pos, ends[from:])
		slow.askEach(want, text, pos, ends[from:])
		if !slices.Equal(queries, want) {
			t.Fatalf("%q from %d: queries %v, want %v", text, pos, queries, want)
		}
		found, all := make([]uint32, Tokens*len(queries)), make([]uint32, Tokens*len(queries))
		for i, n, m := 0, 0, 0; i < len(queries); i++ {
			next, count := fast.Recall(queries, i, found, n)
			after, total := slow.recallEach(queries, i, all, m)
			if next != after || count != total || !slices.Equal(found[:count], all[:total]) {
				t.Fatalf("recall from %d: %d, %v, want %d, %v", i, next, found[:count], after, all[:total])
			}
			if i, n, m = next, count, total; i == len(queries) {
				break
			}
			switch q := &queries[i]; {
			case q.IsLong():
				long++
			case fast.Has(q):
				refused++
			default:
				tokens := make([]uint32, 1+r.IntN(6))
				for j := range tokens {
					tokens[j] = r.Uint32N(1 << 21)
				}
				if fast.Remember(q, tokens) != slow.Remember(q, tokens) {
					t.Fatalf("remembering %v differs", tokens)
				}
				second++
			}
		}
		if !slices.Equal(fast.sets, slow.sets) {
			t.Fatal("the places differ")
		}
	}
	if long < 100 || second < 100 || refused < 100 {
		t.Errorf("%d long pieces, %d new ones, %d with many tokens: each case should be covered", long, second, refused)
	}
}

// TestRecallReturnsWhatWasRemembered: a piece has its tokens until newer pieces displace it.
func TestRecallReturnsWhatWasRemembered(t *testing.T) {
	p := New(1)
	text, ends := []byte("one two three four and more text"), []int{3, 7, 13}
	queries := make([]Query, len(ends))
	p.Ask(queries, text, 0, ends)
	found := make([]uint32, Tokens*len(queries))
	tokens := [][]uint32{{1}, {2, 3, 4, 5}, {6, 7}}
	for i := range queries {
		if next, n := p.Recall(queries, i, found, 0); next != i || n != 0 {
			t.Fatalf("piece %d is known: %d, %v", i, next, found[:n])
		}
		p.Remember(&queries[i], tokens[i])
		if next, n := p.Recall(queries[:i+1], i, found, 0); next != i+1 || !slices.Equal(found[:n], tokens[i]) {
			t.Fatalf("piece %d has the tokens %v, want %v", i, found[:n], tokens[i])
		}
	}
	if p.Has(&queries[0]) || !p.Has(&queries[1]) || !p.Has(&queries[2]) {
		t.Error("a set has not its last two pieces")
	}
}
