package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// mostFlips is the largest number of flipped bits of a case.
const mostFlips = 8

// hurt returns a damaged copy of b and a description of the damage.
func hurt(rng *rand.Rand, b []byte) (out []byte, what string) {
	out = bytes.Clone(b)
	kind := rng.IntN(10)
	if len(out) == 0 {
		kind = 9
	}
	switch {
	case kind < 6:
		return flip(rng, out)
	case kind < 8:
		n := rng.IntN(len(out))
		return out[:n], fmt.Sprintf("cut to %d of %d bytes", n, len(b))
	case kind < 9:
		at := rng.IntN(len(out))
		n := min(1+rng.IntN(600), len(out)-at)
		clear(out[at : at+n])
		return out, fmt.Sprintf("zeros at bytes %d to %d of %d", at, at+n, len(b))
	}
	n := 1 + rng.IntN(600)
	switch rng.IntN(3) {
	case 0:
		return append(out, make([]byte, n)...), fmt.Sprintf("%d zeros behind", n)
	case 1:
		for range n {
			out = append(out, byte(rng.Uint32()))
		}
		return out, fmt.Sprintf("%d random bytes behind", n)
	}
	n = min(n, len(b)-len(b)/4) // a whole file twice is no damage in many a format
	return append(out, b[len(b)-n:]...), fmt.Sprintf("the last %d bytes twice", n)
}

// flip flips one bit in most cases, else a few, which may be in one place.
func flip(rng *rand.Rand, b []byte) ([]byte, string) {
	n := 1
	if rng.IntN(3) == 0 {
		n += rng.IntN(mostFlips)
	}
	near := rng.IntN(2) == 0
	first := rng.IntN(len(b))
	at := first
	var bits []string
	for range n {
		bit := rng.IntN(8)
		b[at] ^= 1 << bit
		bits = append(bits, fmt.Sprintf("%d.%d", at, bit))
		if at = rng.IntN(len(b)); near {
			at = max(0, min(len(b)-1, first+rng.IntN(17)-8))
		}
	}
	return b, fmt.Sprintf("bits %s of %d bytes", strings.Join(bits, ", "), len(b))
}
