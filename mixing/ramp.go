package mixing

import (
	"fmt"
	"math/bits"
	"strings"
)

// Ramp is the way in which a milestone's weights come into force.
type Ramp uint8

// The ramps of a mixture file. The zero value is RampNone.
const (
	RampNone   Ramp = iota // at once
	RampLinear             // in proportion to the part of the ramp that is over
	RampCosine             // (1 - cos(pi * part)) / 2: slow at both ends

	rampEnd // one more than the last ramp
)

// Ramps returns all ramps.
func Ramps() (all []Ramp) {
	for r := range rampEnd {
		all = append(all, r)
	}
	return all
}

// String returns the ramp's word in a mixture file.
func (r Ramp) String() string {
	switch r {
	case RampNone:
		return "none"
	case RampLinear:
		return "linear"
	case RampCosine:
		return "cosine"
	}
	return fmt.Sprintf("Ramp(%d)", uint8(r))
}

// ParseRamp reads a ramp's word; the empty word is none.
func ParseRamp(word string) (Ramp, error) {
	if word == "" {
		return RampNone, nil
	}
	words := make([]string, 0, rampEnd)
	for _, r := range Ramps() {
		if r.String() == word {
			return r, nil
		}
		words = append(words, r.String())
	}
	return RampNone, fmt.Errorf("parse ramp %q: it is one of %s", word, strings.Join(words, ", "))
}

// blend returns old + (new - old) * done / over, rounded down, for done < over and old, new <= 2^62.
func blend(before, after, done, over uint64) uint64 {
	// Both products together are at most 2^62 * over, so the high word is at most over / 4 and the quotient fits.
	h1, l1 := bits.Mul64(before, over-done)
	h2, l2 := bits.Mul64(after, done)
	low, carry := bits.Add64(l1, l2, 0)
	quotient, _ := bits.Div64(h1+h2+carry, low, over)
	return quotient
}

// cosineWay returns (1 - cos(pi * done / over)) / 2 in parts of 2^62, for done < over: sin^2 of half the angle,
// mirrored at the middle to keep the angle below pi/4.
func cosineWay(done, over uint64) uint64 {
	mirrored := done > over-done
	if mirrored {
		done = over - done
	}
	const piParts = 0xc90fdaa22168c234 // pi in parts of 2^62; pi * done / over / 2 is the half angle
	high, low := bits.Mul64(piParts, done)
	angle, _ := bits.Div64(high, low, over) // piParts * done / over <= pi/2 * 2^62 < 2^63
	sine := sineParts(angle / 2)
	way := mulParts(sine, sine)
	if mirrored {
		return wholeParts - way
	}
	return way
}

// sineParts is the Taylor series of the sine up to x^19 / 19!, all in parts of 2^62, for x <= pi/4. The terms left out
// are below 2^-72, the rounding error is below 2^-58.
func sineParts(x uint64) uint64 {
	square := mulParts(x, x)
	sum := uint64(wholeParts)
	for k := uint64(18); k >= 2; k -= 2 { // 1 - x²/(2·3) · (1 - x²/(4·5) · (…))
		sum = wholeParts - mulParts(square, sum)/(k*(k+1))
	}
	return mulParts(x, sum)
}

// mulParts multiplies two numbers in parts of 2^62, rounding down.
func mulParts(x, y uint64) uint64 {
	high, low := bits.Mul64(x, y)
	return high<<(64-wholeBits) | low>>wholeBits
}
