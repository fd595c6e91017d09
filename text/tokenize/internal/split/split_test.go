package split

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func splitters() []*Splitter {
	return []*Splitter{New(R50k), New(Cl100k), New(O200k), New(Llama3), New(Qwen2)}
}

// piecesOneByOne returns the pieces' ends without blocks.
func piecesOneByOne(s *Splitter, t []byte) (ends []int) {
	for pos := 0; pos < len(t); {
		pos = s.next(t, pos)
		ends = append(ends, pos)
	}
	return ends
}

func piecesInBlocks(s *Splitter, t []byte) (ends []int) {
	var some Ends
	for pos := 0; pos < len(t); {
		n := s.Pieces(t, pos, &some)
		ends = append(ends, some[:n]...)
		pos = some[n-1]
	}
	return ends
}

// Both ways to find pieces agree on all texts: above all if runs meet, cross the edge of a block, or meet characters
// beyond ASCII.
func TestBlocksAgreeWithScanners(t *testing.T) {
	all := splitters()
	alphabets := []string{
		"a 1.\n", "ab  \t\n", "a'st \n", " '\nsSlL.", "a1 ", "123456789a", ".\n\r /", " \t\n", "aA 1.,\n\r\t'rev",
		"\x00\x1c\x7f\x0b a.",
		"a .\n中", " 'sé\n", "a1.é\u00a0\u0301\u3000 \n", "aaaaaaaaaaaaaaaaaaaaaaaa 1", "                   a\n",
		"ab\n                  ", "aAbB's//\n.", "/\n./a", "A's aSLl're/\n",
		"дДaA '中.", "中 、a。\n/", "नमस्ते a\n.", "дД'сs'S ſ", "ǅʰéЖж1²", "e\u0301E '\u0301.", "한A가a '\u0301/",
		"д\xd0\x80 a\xe4\xb8", "𐐀𐐨a A😀.", "дждждждждждж жд",
	}
	r := rand.New(rand.NewPCG(9, 10))
	for i := range 20_000 {
		alphabet := strings.Split(alphabets[i%len(alphabets)], "") // broken bytes stay single
		var text strings.Builder
		for range 1 + r.IntN(260) {
			text.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		for _, s := range all {
			got, want := piecesInBlocks(s, []byte(text.String())), piecesOneByOne(s, []byte(text.String()))
			if !slices.Equal(got, want) {
				t.Fatalf("%v, %q: pieces end at %v, one by one at %v", s.pattern, text.String(), got, want)
			}
		}
	}
}

// Every ASCII character stands beside every other one, at many places of a block.
func TestBlocksAgreeOnAllPairs(t *testing.T) {
	for _, s := range splitters() {
		for a := range byte(0x80) {
			for b := range byte(0x80) {
				mixed := string([]byte{a, b, a, a, b, b, 'x', a, '\n', b, ' ', a, ' ', b, '1', a})
				text := []byte(strings.Repeat("x y", int(a+b)%21) + mixed + strings.Repeat("z1", 40))
				if got, want := piecesInBlocks(s, text), piecesOneByOne(s, text); !slices.Equal(got, want) {
					t.Fatalf("%v, %q: pieces end at %v, one by one at %v", s.pattern, text, got, want)
				}
			}
		}
	}
}

// Every piece ends where Pieces says, from any piece on: the text before a piece does not change it.
func TestPiecesFromAnywhere(t *testing.T) {
	text := []byte(
		strings.Repeat("It's 12345 (words),\n\n  \tfoo'bar != 7;  \n", 12) + strings.Repeat("größer 中文 ", 20))
	for _, s := range splitters() {
		want := piecesOneByOne(s, text)
		for i, start := range want[:len(want)-1] {
			var some Ends
			n := s.Pieces(text, start, &some)
			if !slices.Equal(some[:n], want[i+1:min(i+1+n, len(want))]) {
				t.Fatalf("%v: pieces from %d on end at %v", s.pattern, start, some[:n])
			}
		}
	}
}

func TestClassifyBlock(t *testing.T) {
	c := newClasses([]byte(classRuns))
	for first := range 0x80 {
		var text [blockWidth]byte
		for i := range text {
			text[i] = byte((first + i*37) % 0x80)
		}
		for _, size := range []int{blockWidth, 63, 17, 1} {
			if size < blockWidth {
				text[size] = 0x80
			}
			var k block
			k.read(&text, c, Cl100k)
			if k.size != size {
				t.Fatalf("%q: size %d, want %d", text, k.size, size)
			}
			for i := range blockWidth {
				class := c.ascii[text[i]]
				if i >= size {
					class = 0
				}
				for _, field := range []struct {
					name string
					bits uint64
					want bool
				}{
					{"letters", k.letters, class&letter != 0},
					{"numbers", k.numbers, class&number != 0},
					{"spaces", k.spaces, class&space != 0},
					{"others", k.others, class&other != 0},
					{"lines", k.lines, class&newline != 0},
					{"blanks", k.blanks, class != 0 && text[i] == ' '},
					{"quotes", k.quotes, class != 0 && text[i] == '\''},
				} {
					if field.bits>>i&1 == 1 != field.want {
						t.Fatalf("byte %d, 0x%02x, of %d: %s is %v", i, text[i], size, field.name, !field.want)
					}
				}
			}
		}
	}
}
