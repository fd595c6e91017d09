package tokenize

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace/text/tokenize/internal/vocab"
)

// randomVocabulary returns all bytes and random pairs of tokens before, from few characters: so merges inside a
// character compete with merges across its ends.
func randomVocabulary(t *testing.T, r *rand.Rand, alphabet []byte) *vocab.Vocabulary {
	t.Helper()
	var file bytes.Buffer
	seen := make(map[string]bool)
	var some []string
	add := func(token string) {
		if !seen[token] {
			fmt.Fprintf(&file, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(token)), len(seen))
			seen[token] = true
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for i := range alphabet {
		some = append(some, string(alphabet[i:i+1]))
	}
	for range 10 + r.IntN(60) {
		if at := r.IntN(len(alphabet) - 1); r.IntN(2) == 0 { // parts of characters are frequent
			some = append(some, string(alphabet[at:min(at+2+r.IntN(2), len(alphabet))]))
		} else {
			some = append(some, some[r.IntN(len(some))]+some[r.IntN(len(some))])
		}
		add(some[len(some)-1])
	}
	v, err := vocab.ReadTiktoken(&file)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestFirmCharactersChangeNoTokens: pieces with firm characters as parts merge as their bytes do, in vocabularies where
// many characters are not firm, and around broken characters.
func TestFirmCharactersChangeNoTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	firm, bare := 0, 0
	for range 250 {
		alphabet := []byte(" aдеé中文")
		v := randomVocabulary(t, r, alphabet)
		m := &merger{table: newMergeTable(v)}
		for range 60 {
			piece := randomText(r, v, alphabet)
			want := m.windows.queue.merge(nil, m.table, piece, &m.stride)
			if got := m.merge(nil, piece); !slices.Equal(got, want) {
				t.Fatalf("%q: merged to %v, want %v", piece, got, want)
			}
			for i := range piece {
				if _, size := m.table.firm.part(piece, i); size > 0 {
					firm++
				} else if piece[i] >= 0xc0 {
					bare++
				}
			}
		}
	}
	if firm < 1000 || bare < 1000 {
		t.Errorf("%d firm characters and %d others: both cases should be covered", firm, bare)
	}
}

// randomText returns a text of characters, of tokens, and of single bytes.
func randomText(r *rand.Rand, v *vocab.Vocabulary, alphabet []byte) (text []byte) {
	characters := bytes.Runes(alphabet)
	for n := 1 + r.IntN(30); n > 0; n-- {
		switch r.IntN(8) {
		case 0:
			text = append(text, alphabet[r.IntN(len(alphabet))])
		case 1:
			text = append(text, v.Token(uint32(r.IntN(v.Len())))...)
		default:
			text = append(text, string(characters[r.IntN(len(characters))])...)
		}
	}
	return text
}

// TestFirmCharactersOfVocabularies: of the published vocabularies, many characters are firm, and they change no tokens
// in texts of their scripts.
func TestFirmCharactersOfVocabularies(t *testing.T) {
	scripts := []rune{0xe0, 0x3b1, 0x430, 0x5d0, 0x627, 0x905, 0xe01, 0x3042, 0x30a2, 0x4e00, 0xac00}
	for _, name := range testEncodings() {
		m := &merger{table: load(t, name).merges}
		r := rand.New(rand.NewPCG(13, 14))
		firm := 0
		for range 3000 {
			script := scripts[r.IntN(len(scripts))]
			var piece []byte
			for n := 1 + r.IntN(40); n > 0; n-- {
				switch r.IntN(10) {
				case 0:
					piece = append(piece, " a.-\n"[r.IntN(5)])
				case 1:
					piece = append(piece, byte(0x80+r.IntN(0x80)))
				default:
					piece = append(piece, string(script+rune(r.IntN(30)))...)
				}
			}
			want := m.windows.queue.merge(nil, m.table, piece, &m.stride)
			if got := m.merge(nil, piece); !slices.Equal(got, want) {
				t.Fatalf("%s, %q: merged to %v, want %v", name, piece, got, want)
			}
			for i := range piece {
				if _, size := m.table.firm.part(piece, i); size > 0 {
					firm++
				}
			}
		}
		if t.Logf("%s: %d firm characters", name, firm); firm < 1000 {
			t.Errorf("%s: %d firm characters, want more", name, firm)
		}
	}
}
