package jsonl

import (
	"encoding/binary"
	"math/bits"
)

// wordBytes is the number of bytes that one step looks at.
const wordBytes = 8

// blockReach is the number of bytes from the beginning of a block on that a step may read and write: a block of 64
// bytes, and another behind an escape that begins with the last byte of the first one.
const blockReach = 64 + 1 + 1 + 64

// unquote copies the beginning of a string's content from in to out, and replaces escapes of two bytes. It stops at a
// quote, at a control character, at another escape, and at the end. out has room for the bytes of in and blockReach
// more; the bytes behind those that it wrote have no meaning.
func unquote(out, in []byte) (read, wrote int) {
	if !hasBlocks() {
		return unquoteWords(out, in)
	}
	if len(in) >= blockReach {
		read, wrote = unquoteBlocks(&out[0], &in[0], len(in))
		if len(in)-read >= blockReach {
			return read, wrote
		}
	}
	var last [2 * blockReach]byte // the zeros behind the string are control characters
	n := copy(last[:], in[read:])
	r, w := unquoteBlocks(&out[wrote], &last[0], n+blockReach)
	return read + r, wrote + w
}

// unquoteWords does the work of unquote with words of the processor.
func unquoteWords(out, in []byte) (i, n int) {
	for {
		for i+wordBytes <= len(in) {
			w := binary.LittleEndian.Uint64(in[i:])
			binary.LittleEndian.PutUint64(out[n:], w)
			if m := special(w); m != 0 {
				plain := bits.TrailingZeros64(m) >> 3
				i, n = i+plain, n+plain
				break
			}
			i, n = i+wordBytes, n+wordBytes
		}
		for i < len(in) && in[i] != '"' && in[i] != '\\' && in[i] >= 0x20 {
			out[n] = in[i]
			i, n = i+1, n+1
		}
		if i+1 >= len(in) || in[i] != '\\' {
			return i, n
		}
		c := escapeOf(in[i+1])
		if c == 0 {
			return i, n
		}
		out[n] = c
		i, n = i+2, n+1
	}
}
