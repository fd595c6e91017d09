package pairs

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"millrace/text/tokenize/internal/vocab"
)

// vocabulary returns the single bytes and tokens of letters.
func vocabulary(t *testing.T, r *rand.Rand, words int) *vocab.Vocabulary {
	t.Helper()
	var file strings.Builder
	seen := make(map[string]bool)
	add := func(token string) {
		if !seen[token] {
			fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), len(seen))
			seen[token] = true
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	some := strings.Split("abcdefghijklmnopqrstuvwxyz ", "")
	for range words {
		some = append(some, some[r.IntN(len(some))]+some[r.IntN(27)])
		add(some[len(some)-1])
	}
	v, err := vocab.ReadTiktoken(strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestTableHasEveryMerge: a table finds the merges of its vocabulary and no others. A vocabulary may have none.
func TestTableHasEveryMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, words := range []int{0, 1, 2, 3, 4, 5, 7, 100, 1000, 20_000} {
		v := vocabulary(t, r, words)
		table := New(v)
		merges := make(map[[2]uint32]uint32)
		for id := range uint32(v.Len()) {
			if left, right, ok := v.Pair(id); ok {
				merges[[2]uint32{left, right}] = id
			}
		}
		if words >= 100 && len(merges) < words/2 {
			t.Fatalf("%d words have %d merges", words, len(merges))
		}
		for pair, id := range merges {
			if got := table.Find(pair[0], pair[1]); got != id {
				t.Fatalf("%d words: %v merges into %d, want %d", words, pair, got, id)
			}
		}
		for range 100_000 {
			left, right := uint32(r.IntN(v.Len())), uint32(r.IntN(v.Len()))
			if _, ok := merges[[2]uint32{left, right}]; !ok && table.Find(left, right) != None {
				t.Fatalf("%d words: %d and %d merge, though they have no merge", words, left, right)
			}
			if table.Find(left, NoID) != None || table.Find(NoID, right) != None {
				t.Fatalf("%d words: the number that is no id merges with %d or %d", words, left, right)
			}
		}
	}
}
