package tokenize

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// referenceMerge is byte pair encoding by its definition: look up the bytes of all neighbours, join the pair of the
// lowest rank, start again. It uses only the vocabulary's spellings.
func referenceMerge(ranks map[string]uint32, piece []byte) []uint32 {
	var parts []string
	for _, b := range piece {
		parts = append(parts, string([]byte{b}))
	}
	for {
		at, lowest := -1, noToken
		for i := range len(parts) - 1 {
			if rank, ok := ranks[parts[i]+parts[i+1]]; ok && rank < lowest {
				at, lowest = i, rank
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	var ids []uint32
	for _, part := range parts {
		ids = append(ids, ranks[part])
	}
	return ids
}

func rankMap(e *Encoding) map[string]uint32 {
	ranks := make(map[string]uint32)
	for id := range uint32(e.vocabulary.Len()) {
		if token := e.vocabulary.Token(id); len(token) > 0 {
			ranks[string(token)] = id
		}
	}
	return ranks
}

// randomPiece returns n bytes: whole tokens, random bytes, and runs from one small alphabet, of which many merge.
func randomPiece(r *rand.Rand, e *Encoding, n int) []byte {
	alphabets := []string{"a", "ab", " \n", "etaoin shrdlu", "=-", "0123456789", "\xe4\xb8\xad\xe6\x96\x87",
		"\xd0\xb0\xd1\x80"}
	var piece []byte
	for alphabet := alphabets[r.IntN(len(alphabets))]; len(piece) < n; {
		switch r.IntN(4) {
		case 0:
			piece = append(piece, e.vocabulary.Token(uint32(r.IntN(e.vocabulary.Len())))...)
		case 1:
			piece = append(piece, byte(r.IntN(256)))
		default:
			for range r.IntN(20) {
				piece = append(piece, alphabet[r.IntN(len(alphabet))])
			}
		}
	}
	return piece[:n]
}

func TestMergeAgainstItsDefinition(t *testing.T) {
	for _, name := range []string{"r50k_base", "cl100k_base"} {
		e := load(t, name)
		ranks := rankMap(e)
		m := &merger{table: e.merges}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 1500 {
			piece := randomPiece(r, e, 1+i%(scanMax*3/2))
			want := referenceMerge(ranks, piece)
			if got := m.merge(nil, piece); !slices.Equal(got, want) {
				t.Fatalf("%s, %q: merged to %v, want %v", name, piece, got, want)
			}
			if got := m.windows.queue.merge(nil, e.merges, piece, &m.stride); !slices.Equal(got, want) {
				t.Fatalf("%s, %q: queued to %v, want %v", name, piece, got, want)
			}
		}
	}
}

func TestWindowsChangeNoTokens(t *testing.T) {
	e := load(t, "cl100k_base")
	m := &merger{table: e.merges}
	r := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for range 150 {
		piece := randomPiece(r, e, 1+r.IntN(3000))
		want := m.windows.queue.merge(nil, e.merges, piece, &m.stride)
		for _, window := range []int{2, 7, 33, 200, 1000} {
			got, ok := m.mergeWindows([]uint32{7}, piece, window)
			if !ok {
				refused++
				continue
			}
			if !slices.Equal(got[1:], want) {
				t.Fatalf("%q in windows of %d: %v, want %v", piece, window, got[1:], want)
			}
		}
		if got := m.mergeLong([]uint32{7}, piece); !slices.Equal(got[1:], want) {
			t.Fatalf("%q: %v, want %v", piece, got[1:], want)
		}
	}
	if refused == 0 {
		t.Error("no window was too small: the case is not covered")
	}
}

// A run of one letter is one piece of any length.
func TestLongRuns(t *testing.T) {
	for _, name := range testEncodings() {
		e := load(t, name)
		enc := e.NewEncoder()
		for unit, size := range map[string]int{"a": 1 << 20, "xyz": 1 << 16, "中": 1 << 16, "=": 1 << 16, "é": 1 << 16} {
			text := bytes.Repeat([]byte(unit), size/len(unit))
			ids := enc.Append(nil, text)
			back, err := e.Decode(nil, ids)
			if err != nil || !bytes.Equal(back, text) {
				t.Errorf("%s: %d bytes of %q do not come back: %v", name, size, unit, err)
			}
			if c := cap(enc.merger.windows.queue.heap); c > 1<<14 {
				t.Errorf("%s: %d bytes of %q left scratch for %d candidates", name, size, unit, c)
			}
			short := enc.Append(nil, bytes.Repeat([]byte(unit), 8000/len(unit)))
			if n := len(short) / 4; !slices.Equal(ids[:n], short[:n]) {
				t.Errorf("%s: %d bytes of %q begin otherwise than a shorter run", name, size, unit)
			}
		}
	}
}
