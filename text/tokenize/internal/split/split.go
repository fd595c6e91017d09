// Package split divides text into the pieces that a tokenizer encodes one by one: a word with the space before it, a
// run of digits, white space.
//
// A regular expression defines the pieces. Hand-written scanners find its matches, in ASCII for 64 characters at once.
// Every pattern here matches at every position, so pieces are end to end. The end of a piece does not depend on the
// text before its start.
package split

import (
	"bytes"
	"math/bits"
)

// Batch is the most pieces that one call of [Splitter.Pieces] finds.
const Batch = 256

// Ends are the ends of consecutive pieces of a text.
type Ends [Batch]int

// Splitter divides texts by one pattern. It is immutable.
type Splitter struct {
	pattern Pattern
	classes *classes
}

// New returns the splitter of a pattern.
func New(p Pattern) *Splitter {
	s := &Splitter{pattern: p, classes: newClasses([]byte(classRuns))}
	if p == R50kDigits {
		s.classes.numeric = numericTable()
	}
	return s
}

// Pattern returns the pattern.
func (s *Splitter) Pattern() Pattern { return s.pattern }

// next returns the end of the piece at t[i], which must exist. It is the first match of the regular expression,
// alternatives from left to right.
func (s *Splitter) next(t []byte, i int) int {
	switch s.pattern {
	case R50k:
		return s.classes.nextR50k(t, i)
	case R50kDigits:
		return s.classes.nextDigits(t, i)
	case O200k:
		return s.classes.nextO200k(t, i)
	case Llama3:
		return s.classes.nextWords(t, i, words{numbers: 3})
	case Qwen2:
		return s.classes.nextWords(t, i, words{numbers: 1})
	default:
		return s.classes.nextWords(t, i, words{numbers: 3, whole: true})
	}
}

// Cut returns the first place from on where the text may be divided without a change of its pieces, or its length: the
// start of a line that begins with a letter, behind a line that does not end in white space. A newline of every pattern
// here ends a piece before a letter. It is the whole white space there, so the end of a text divides it as a letter
// does.
func (s *Splitter) Cut(t []byte, from int) int {
	switch s.pattern {
	case Cl100k, R50k, O200k, Llama3, Qwen2:
	default:
		return len(t)
	}
	for i := max(from, 2); i < len(t); i++ {
		n := bytes.IndexByte(t[i-1:], '\n')
		if n < 0 {
			break
		}
		i += n
		if i < len(t) && t[i]|0x20 >= 'a' && t[i]|0x20 <= 'z' && t[i-2] > ' ' && t[i-2] < 0x7f {
			return i
		}
	}
	return len(t)
}

const (
	// blockWorth is the least number of characters for which a block pays off. After a shorter block, other characters
	// than ASCII follow.
	blockWorth = 24
	// singles is the number of pieces that are then found one by one before the next try.
	singles = 8
)

// Pieces fills ends with the pieces of t from pos on and returns their number. pos is the start of a piece. It finds at
// least one unless no text is left.
func (s *Splitter) Pieces(t []byte, pos int, ends *Ends) int {
	n := 0
	var k block
	for n <= Batch-blockWidth && pos+blockWidth <= len(t) {
		bytes := (*[blockWidth]byte)(t[pos:])
		k.read(bytes, s.classes, s.pattern)
		starts := uint64(1)
		if k.size >= blockWorth && s.pattern != R50kDigits {
			starts = k.starts(s.pattern, bytes)
		}
		if starts == 1 {
			for limit := n + singles; n < limit && pos < len(t); n++ {
				pos = s.next(t, pos)
				ends[n%Batch] = pos
			}
			continue
		}
		some, count := (*[blockWidth]int)(ends[n:]), 0
		for inner := starts &^ 1; inner != 0; inner &= inner - 1 {
			some[count%blockWidth] = pos + bits.TrailingZeros64(inner)
			count++
		}
		n += count
		pos = ends[(n-1)%Batch]
	}
	for ; n < Batch && pos < len(t) && pos+blockWidth > len(t); n++ {
		pos = s.next(t, pos)
		ends[n] = pos
	}
	return n
}
