package tokenize

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"millrace/text/tokenize/internal/split"
)

// golden has the ids of pip's tiktoken for the texts that internal/reference/golden.py describes.
type golden struct {
	Tiktoken  string
	Block     int
	Contexts  []string
	Blocks    map[string]map[string]string // first code point in hexadecimal → encoding → digest
	Draws     int
	Fragments []string
	Seeds     map[string]map[string]string
	Vectors   []struct {
		Text string
		IDs  map[string][]uint32
	}
}

func readGolden(t testing.TB) *golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{}
	if err := json.Unmarshal(raw, g); err != nil {
		t.Fatal(err)
	}
	if len(g.Blocks) < 20 || len(g.Seeds) < 20 || len(g.Vectors) < 20 {
		t.Fatalf("testdata/golden.json has %d blocks, %d seeds and %d vectors; it is not whole", len(g.Blocks),
			len(g.Seeds), len(g.Vectors))
	}
	return g
}

func surrogate(c int) bool { return 0xd800 <= c && c < 0xe000 }

// blockText returns a text with each code point of a block in every context.
func (g *golden) blockText(start int) []byte {
	var text []byte
	for c := start; c < start+g.Block; c++ {
		if surrogate(c) {
			continue
		}
		for _, context := range g.Contexts {
			text = append(text, strings.ReplaceAll(context, "@", string(rune(c)))...)
		}
	}
	return text
}

// randomText draws fragments and code points with splitmix64.
func (g *golden) randomText(seed uint64) []byte {
	var text []byte
	for range g.Draws {
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		kind, value := z%16, z>>4
		switch c := rune(value % 0x20000); {
		case kind < 4:
			text = append(text, string(rune(value%0x3000))...)
		case kind == 4 && surrogate(int(c)):
			text = append(text, '?')
		case kind == 4:
			text = append(text, string(c)...)
		default:
			text = append(text, g.Fragments[value%uint64(len(g.Fragments))]...)
		}
	}
	return text
}

func digestIDs(ids []uint32) string {
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(raw, id)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// loaded has each encoding once for all tests.
var loaded sync.Map

// load returns an embedded encoding, or one of other ranks: cl100k_base+qwen2+nfc has the ranks of cl100k_base.
func load(t testing.TB, name string) *Encoding {
	t.Helper()
	if e, ok := loaded.Load(name); ok {
		return e.(*Encoding)
	}
	e, err := open(Spec{Name: name})
	if ranks, pattern, borrowed := strings.Cut(name, "+"); borrowed {
		pattern, nfc := strings.CutSuffix(pattern, "+nfc")
		e, err = borrow(ranks, pattern, nfc)
	}
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, e)
	return e
}

func borrow(ranks, pattern string, nfc bool) (*Encoding, error) {
	v, known, err := embedded(ranks)
	if err != nil {
		return nil, err
	}
	d := *known
	d.pattern, _ = split.Parse(pattern)
	d.nfc = nfc
	d.fingerprint = ""
	return newEncoding(&d, v)
}

func testEncodings() []string {
	return []string{"r50k_base", "cl100k_base", "o200k_base", "cl100k_base+llama3", "cl100k_base+qwen2"}
}

// checkGolden compares an encoding with tiktoken's ids of vectors, code points and random texts.
func checkGolden(t *testing.T, name string, e *Encoding) {
	t.Helper()
	g := readGolden(t)
	enc := e.NewEncoder()
	for _, v := range g.Vectors {
		if got := enc.Append(nil, []byte(v.Text)); !slices.Equal(got, v.IDs[name]) {
			t.Errorf("%s, %q: ids %v, tiktoken %s says %v", name, v.Text, got, g.Tiktoken, v.IDs[name])
		}
	}
	var ids []uint32
	for start, digests := range g.Blocks {
		first, err := strconv.ParseInt(start, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		ids = enc.Append(ids[:0], g.blockText(int(first)))
		if got := digestIDs(ids); got != digests[name] {
			t.Errorf("%s: the ids of the code points from U+%s on differ from those of tiktoken %s", name, start,
				g.Tiktoken)
		}
	}
	for seed, digests := range g.Seeds {
		number, err := strconv.ParseUint(seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := digestIDs(enc.Append(nil, g.randomText(number))); got != digests[name] {
			t.Errorf("%s: the ids of random text %s differ from those of tiktoken %s", name, seed, g.Tiktoken)
		}
	}
}

// TestGolden covers every code point of the planes that have letters, in several contexts, and random texts. The short
// form is for emulated machines, which take seconds for each encoding: it has each embedded vocabulary once, and NFC.
func TestGolden(t *testing.T) {
	names := append(testEncodings(), "cl100k_base+qwen2+nfc")
	if testing.Short() {
		names = []string{"r50k_base", "o200k_base", "cl100k_base+qwen2+nfc"}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkGolden(t, name, load(t, name))
		})
	}
}
