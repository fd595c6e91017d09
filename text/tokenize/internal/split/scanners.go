package split

import "encoding/binary"

// maxNumbers is the limit of a run of numbers without a limit.
const maxNumbers = int(^uint(0) >> 1)

// nextR50k follows [R50k].
func (c *classes) nextR50k(t []byte, i int) int {
	j := i
	if t[i] == ' ' && i+1 < len(t) {
		j++
	}
	class, size := c.at(t, j)
	switch {
	case class&letter != 0:
		return c.lettersEnd(t, j+size)
	case class&other != 0:
		if n := contraction(t, i, false); n > 0 {
			return i + n
		}
		return c.othersEnd(t, j+size)
	case class&number != 0:
		return c.numbersEnd(t, j+size, maxNumbers)
	}
	end, last, _ := c.spacesEnd(t, i)
	return beforeWord(t, i, end, last)
}

// beforeWord is \s++$|\s+(?!\S)|\s on white space from i to end, whose last character starts at last. It matches all of
// it at the end of the text. Else it leaves the last character, which may belong to the word that follows.
func beforeWord(t []byte, i, end, last int) int {
	if end == len(t) || last == i {
		return end
	}
	return last
}

// words are the differences between the patterns of cl100k_base and its descendants.
type words struct {
	numbers int  // the longest run of numbers in one piece
	whole   bool // white space at the end of the text is one piece, newlines or not
}

// nextWords follows [Cl100k], [Llama3] or [Qwen2].
func (c *classes) nextWords(t []byte, i int, w words) int {
	class, size := c.at(t, i)
	j := i + size
	switch {
	case class&letter != 0:
		return c.lettersEnd(t, j)
	case class&number != 0:
		return c.numbersEnd(t, j, w.numbers-1)
	case class&newline == 0 && j < len(t):
		if n := contraction(t, i, true); n > 0 {
			return i + n
		}
		next, nextSize := c.at(t, j)
		if next&letter != 0 {
			return c.lettersEnd(t, j+nextSize)
		}
		if t[i] == ' ' && next&other != 0 {
			return newlinesEnd(t, c.othersEnd(t, j+nextSize), false)
		}
	}
	if class&other != 0 {
		return newlinesEnd(t, c.othersEnd(t, j), false)
	}
	end, last, lines := c.spacesEnd(t, i)
	if lines > 0 && !(w.whole && end == len(t)) {
		return lines
	}
	return beforeWord(t, i, end, last)
}

// newlinesEnd returns the end of [\r\n]*, or of [\r\n/]* with slashes, from t[i] on.
func newlinesEnd(t []byte, i int, slashes bool) int {
	for i < len(t) && (t[i] == '\n' || t[i] == '\r' || slashes && t[i] == '/') {
		i++
	}
	return i
}

// nextO200k follows [O200k].
func (c *classes) nextO200k(t []byte, i int) int {
	class, size := c.at(t, i)
	j := i + size
	switch {
	case class&letter != 0:
		return c.casedEnd(t, i, false)
	case class&number != 0:
		return c.numbersEnd(t, j, 2)
	case class&newline == 0:
		if end := c.casedEnd(t, j, class&upper != 0); end > 0 {
			return end
		}
		if t[i] == ' ' && j < len(t) {
			if next, nextSize := c.at(t, j); next&other != 0 {
				return newlinesEnd(t, c.othersEnd(t, j+nextSize), true)
			}
		}
	}
	if class&other != 0 {
		return newlinesEnd(t, c.othersEnd(t, j), true)
	}
	end, last, lines := c.spacesEnd(t, i)
	if lines > 0 {
		return lines
	}
	return beforeWord(t, i, end, last)
}

// casedEnd matches the two word alternatives of o200k at t[i], behind their optional first character. It returns the
// end, or 0 if there is no word. If afterMark, the character before i is a mark: then the match may also skip the
// optional character and begin with the mark itself.
func (c *classes) casedEnd(t []byte, i int, afterMark bool) int {
	end := 0
	if i+8 <= len(t) && !afterMark {
		end = casedASCII(binary.LittleEndian.Uint64(t[i:]), i)
	}
	if end == 0 {
		end = c.casedSlow(t, i, afterMark)
	}
	if end > 0 && end < len(t) && t[end] == '\'' {
		end += contraction(t, end, true)
	}
	return end
}

// casedASCII returns the end of the word at i. It returns 0 unless the word and the character behind it are ASCII and
// within the eight bytes of x.
func casedASCII(x uint64, i int) int {
	uppers := leadingIn(x, 'A', 'Z', 0)
	lowers := leadingIn(x>>(8*uppers), 'a', 'z', 0)
	n := uppers + lowers
	if n == 0 || n >= 8 || byte(x>>(8*n)) >= 0x80 {
		return 0
	}
	return i + n
}

// casedSlow follows the backtracking of [upper]*[lower]+. upper takes all that it can. If no lower follows, it gives
// back characters until one is a lower, too. That character then is the only one of [lower]+. [upper]+[lower]* is tried
// only if there is none.
func (c *classes) casedSlow(t []byte, i int, afterMark bool) int {
	uppersEnd, bothEnd := i, 0
	for uppersEnd < len(t) {
		class, size := c.at(t, uppersEnd)
		if class&upper == 0 {
			break
		}
		uppersEnd += size
		if class&lower != 0 {
			bothEnd = uppersEnd
		}
	}
	if lowersEnd := c.runEnd(t, uppersEnd, lower); lowersEnd > uppersEnd {
		return lowersEnd
	}
	switch {
	case bothEnd > 0:
		return bothEnd
	case afterMark:
		return i
	case uppersEnd > i:
		return uppersEnd
	}
	return 0
}
