package split

import (
	"math/rand/v2"
	"testing"
)

// TestMasksAreGolden: on every architecture, with and without instructions for vectors, the masks of any bytes are
// equal.
func TestMasksAreGolden(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for i := range 20_000 {
		var text [blockWidth]byte
		for j := range text {
			text[j] = byte(r.UintN([]uint{0x80, 0x100, 0x40}[i%3]))
		}
		if i%3 == 0 {
			text[i/3%blockWidth] = byte(i / (3 * blockWidth)) // every byte at every place
		}
		var got, want masks
		classify(&text, &got)
		classifyWords(&text, &want)
		if want.beyond == 0 { // the masks after it are undefined
			got.inner, got.threes, got.fours = 0, 0, 0
		}
		if got != want {
			t.Fatalf("%q: masks %x, want %x", text, got, want)
		}
	}
}

// TestClassifyWords: each mask has the bytes of its class.
func TestClassifyWords(t *testing.T) {
	c := newClasses([]byte(classRuns))
	for b := range 0x100 {
		var text [blockWidth]byte
		text[b%blockWidth] = byte(b)
		var m masks
		classifyWords(&text, &m)
		class := c.ascii[b]
		for name, field := range map[string]struct {
			mask uint64
			want bool
		}{
			"letters": {m.letters, class&letter != 0},
			"numbers": {m.numbers, class&number != 0},
			"spaces":  {m.spaces, class&space != 0},
			"uppers":  {m.uppers, class&upper != 0},
			"lines":   {m.lines, class&newline != 0},
			"blanks":  {m.blanks, b == ' '},
			"quotes":  {m.quotes, b == '\''},
			"slashes": {m.slashes, b == '/'},
			"beyond":  {m.beyond, b >= 0x80},
			"inner":   {m.inner, b >= 0x80 && b < 0xc0},
			"threes":  {m.threes, b >= 0xe0},
			"fours":   {m.fours, b >= 0xf0},
		} {
			if field.mask>>(b%blockWidth)&1 == 1 != field.want {
				t.Errorf("byte 0x%02x: %s is %v", b, name, !field.want)
			}
		}
	}
}
