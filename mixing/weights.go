package mixing

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Weight is a source's relative weight, exactly digits * 10^exponent as its decimal literal says, without floating
// point. The zero Weight is 0. Weights of equal value are ==, however they were written.
type Weight struct {
	digits   uint64 // no trailing zero; 0 only with exponent 0
	exponent int8
}

const (
	maxWeightDigits = 19 // significant digits kept: all of them fit 64 bits
	maxMagnitude    = 60 // a weight other than 0 is in [10^-60, 10^60)
)

// ErrNoWeight is returned if every weight of a mixture is zero.
var ErrNoWeight = errors.New("every weight is 0: at least one source needs a positive weight")

// ParseWeight reads a decimal literal: digits with an optional point, exponent and underscores between digits ("0.6",
// "6e-1", ".6", "1_000"). Significant digits beyond the 19th are dropped. Signs other than "+", NaN, infinities, other
// bases and magnitudes outside 1e-60 … 1e60 are errors.
func ParseWeight(text string) (Weight, error) {
	fail := func(why string) (Weight, error) { return Weight{}, fmt.Errorf("parse weight %q: %s", text, why) }
	switch strings.ToLower(strings.TrimLeft(text, "+-.")) {
	case "nan", "inf", "infinity":
		return fail("a weight is a finite decimal number, such as 0.6")
	}
	mantissa, exponentText, hasExponent := strings.Cut(strings.ToLower(strings.TrimPrefix(text, "+")), "e")
	if strings.HasPrefix(mantissa, "-") {
		return fail("a weight cannot be negative")
	}
	w, exponent, ok := parseMantissa(mantissa)
	if !ok {
		return fail("a weight is a decimal number, such as 0.6 or 6e-1")
	}
	if hasExponent {
		e, err := strconv.ParseInt(exponentText, 10, 16)
		if errors.Is(err, strconv.ErrSyntax) {
			return fail("the exponent is no integer")
		} else if err != nil && w != 0 {
			return fail("it is outside 1e-60 … 1e60")
		}
		exponent += int(e)
	}
	if w == 0 {
		return Weight{}, nil
	}
	for ; w%10 == 0; w /= 10 {
		exponent++
	}
	if magnitude := exponent + len(strconv.FormatUint(w, 10)); magnitude <= -maxMagnitude || magnitude > maxMagnitude {
		return fail("it is outside 1e-60 … 1e60")
	}
	return Weight{digits: w, exponent: int8(exponent)}, nil
}

// parseMantissa reads digits with at most one point. ok is false if there is no digit or any other character.
func parseMantissa(text string) (digits uint64, exponent int, ok bool) {
	significant, point, previous := 0, false, byte('_')
	for i := range len(text) {
		c := text[i]
		switch {
		case c == '.' && !point:
			point = true
		case c == '_' && isDigit(previous) && i+1 < len(text) && isDigit(text[i+1]):
		case isDigit(c):
			ok = true
			if significant < maxWeightDigits {
				digits = digits*10 + uint64(c-'0')
				if digits > 0 {
					significant++
				}
				if point {
					exponent--
				}
			} else if !point {
				exponent++
			}
		default:
			return 0, 0, false
		}
		previous = c
	}
	return digits, exponent, ok
}

// wholeWeight returns the weight of an integer below 10^19.
func wholeWeight(n uint64) (w Weight) {
	for w.digits = n; n > 0 && w.digits%10 == 0; w.digits /= 10 {
		w.exponent++
	}
	return w
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// IsZero reports whether the weight is 0: its source is not drawn.
func (w Weight) IsZero() bool { return w.digits == 0 }

// String returns the weight as a literal that ParseWeight reads back, such as "0.6" or "3e-09".
func (w Weight) String() string {
	digits := strconv.FormatUint(w.digits, 10)
	point := len(digits) + int(w.exponent)
	switch {
	case w.exponent >= 0 && point <= 21:
		return digits + strings.Repeat("0", int(w.exponent))
	case w.exponent < 0 && point > 0:
		return digits[:point] + "." + digits[point:]
	case w.exponent < 0 && point > -6:
		return "0." + strings.Repeat("0", -point) + digits
	}
	return fmt.Sprintf("%se%d", digits, w.exponent)
}

// scaled returns digits * 10^(exponent - floor), an integer if floor is no more than the exponent.
func (w Weight) scaled(floor int8) *big.Int {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(w.exponent)-int64(floor)), nil)
	return power.Mul(power, new(big.Int).SetUint64(w.digits))
}

// scaledTogether returns the weights of several items as integers in one unit.
func scaledTogether[T any](of []T, weight func(T) Weight) []*big.Int {
	var floor int8 = maxMagnitude
	for _, x := range of {
		floor = min(floor, weight(x).exponent)
	}
	out := make([]*big.Int, len(of))
	for i, x := range of {
		out[i] = weight(x).scaled(floor)
	}
	return out
}
