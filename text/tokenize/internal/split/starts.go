package split

import "math/bits"

// starts returns the starts of pieces, as bits, for a pattern that blocks support. Bit 0 is always one. It leaves out
// starts that depend on bytes behind the block.
func (k *block) starts(p Pattern, t *[blockWidth]byte) uint64 {
	switch p {
	case R50k:
		return k.startsR50k(t)
	case O200k:
		return k.startsO200k(t)
	case Qwen2:
		return k.startsWords(t, k.numbers)
	}
	return k.startsWords(t, k.byThree())
}

func (k *block) startsR50k(t *[blockWidth]byte) uint64 {
	words := firsts(k.letters) | firsts(k.numbers) | firsts(k.others)
	starts := words &^ (k.blanks << 1)
	// White space without its last character is one piece. If the block ends in white space, its last character is
	// unknown.
	lasts := k.spaces &^ (k.spaces >> 1) &^ (1 << (k.size - 1))
	starts |= firsts(k.spaces) | lasts
	return k.contractions(t, starts, false)
}

// byThree returns the starts of the pieces of at most three numbers.
func (k *block) byThree() uint64 {
	numbers := firsts(k.numbers)
	threes := k.numbers & (k.numbers << 1) & (k.numbers << 2) & (k.numbers << 3)
	for next := numbers << 3 & threes; next != 0; next = next << 3 & threes {
		numbers |= next
	}
	return numbers
}

// startsWords is starts for [Cl100k], [Llama3] and [Qwen2]. numbers are the starts of the pieces of numbers. The
// patterns differ in white space at the end of the text, which is never in a block.
func (k *block) startsWords(t *[blockWidth]byte, numbers uint64) uint64 {
	// Newlines directly behind others belong to them: the sum carries through their runs.
	taken := k.lines &^ (k.lines + k.lines&(k.others<<1))
	return k.contractions(t, k.startsBeside(numbers, taken), true)
}

// startsBeside returns the starts of the pieces behind each other, without contractions. taken are the characters that
// belong to the others before them.
func (k *block) startsBeside(numbers, taken uint64) uint64 {
	others := firsts(k.others&^taken) &^ (k.blanks << 1)
	spaces := k.spaces &^ taken
	blanks := k.spaces &^ k.lines
	letters := firsts(k.letters) &^ (blanks << 1) &^ k.next(others)
	starts := numbers | others | letters | firsts(spaces) | k.blanksStarts(blanks)
	if top := k.size - 1; spaces>>top&1 != 0 {
		// The block does not decide the pieces of its last white space.
		starts &= upTo(bits.Len64(^spaces & upTo(top)))
	}
	return starts
}

// startsO200k is starts for [O200k]. A word also ends before an upper-case letter that follows a lower-case one.
// Slashes and newlines behind others belong to them, and contractions to the words before them.
func (k *block) startsO200k(t *[blockWidth]byte) uint64 {
	starts := k.startsBeside(k.byThree(), k.linesBehindOthers()) | k.uppers&(k.lowers<<1)
	behind := 0 // the contraction before
	for quotes := k.quotes & (k.letters << 1); quotes != 0; quotes &= quotes - 1 {
		at := bits.TrailingZeros64(quotes)
		switch n := contraction(t[:], at, true); {
		case at == behind: // it begins the next piece
		case at+3 >= k.size:
			return starts & upTo(at-1)
		case n > 0:
			behind = at + n
			starts = starts&^(upTo(behind)&^upTo(at-1)) | 1<<behind
		}
	}
	return starts
}

// linesBehindOthers returns the newlines directly behind others, with the newlines and slashes that follow them.
func (k *block) linesBehindOthers() (taken uint64) {
	both := k.lines | k.slashes
	for firsts := k.lines & (k.others << 1); firsts != 0; firsts &= firsts - 1 {
		first := firsts & -firsts
		taken |= both &^ (both + first) &^ (first - 1)
	}
	return taken
}

// blanksStarts returns the starts of pieces among blanks, which are white space other than newlines. A run of blanks
// behind the last newline of its white space starts a piece. So does the last blank of white space.
func (k *block) blanksStarts(blanks uint64) uint64 {
	behind := blanks & (k.lines << 1)
	// A run of blanks with a newline behind it is not behind the last one.
	for ends := (blanks + firsts(blanks)) & k.lines; ends != 0; ends &= ends - 1 {
		end := bits.TrailingZeros64(ends)
		behind &^= 1 << bits.Len64(^blanks&(1<<end-1))
	}
	return behind | blanks&^(k.spaces>>1)
}

// contractions moves the starts at and behind each apostrophe that begins a contraction.
func (k *block) contractions(t *[blockWidth]byte, starts uint64, fold bool) uint64 {
	for quotes := starts & k.quotes; quotes != 0; quotes &= quotes - 1 {
		at := bits.TrailingZeros64(quotes)
		if at+3 >= k.size {
			return starts & upTo(at)
		}
		if n := contraction(t[:], at, fold); n > 0 {
			starts = starts&^(upTo(at+n)&^upTo(at)) | 1<<(at+n)
		}
	}
	return starts
}
