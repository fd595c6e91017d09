package trie

import (
	"math/rand/v2"
	"testing"
)

func TestFindsExactlyItsKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	want := map[string]uint32{}
	var keys [][]byte
	for i := range uint32(20000) {
		key := make([]byte, r.IntN(7))
		for j := range key {
			key[j] = byte(r.IntN(5) * r.IntN(60))
		}
		keys = append(keys, key)
		if len(key) > 0 {
			want[string(key)] = i
		}
	}
	trie := New(keys, nil)
	for _, key := range keys {
		for _, more := range []string{"", "x", "\x00"} {
			key := string(key) + more
			id, ok := want[key]
			if !ok {
				id = None
			}
			if got := trie.Find([]byte(key)); got != id {
				t.Fatalf("the value of %q is %d, not %d", key, got, id)
			}
		}
	}
	if limit := 4 * 60000 * 2; len(trie.units) > limit {
		t.Errorf("the trie takes %d units", len(trie.units))
	}
}

func TestLeavesKeysOut(t *testing.T) {
	trie := New([][]byte{[]byte("a"), []byte("ab")}, func(i int) bool { return i == 1 })
	if trie.Find([]byte("a")) != None || trie.Find([]byte("ab")) != 1 {
		t.Error("the trie has other keys than it was told to keep")
	}
}
