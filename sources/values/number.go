package values

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"millrace"
)

// Number is a number with its exact digits, as JSON writes it: a decimal, or an integer that an int does not hold.
type Number string

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return []byte(n), nil }

// IsWhole reports whether the number is an integer.
func (n Number) IsWhole() bool { return !strings.Contains(string(n), ".") }

// Float returns the nearest float64.
func (n Number) Float() float64 {
	f, _ := strconv.ParseFloat(string(n), 64) // a Number has at most 77 digits, or is a JSON integer: see Numeral
	return f
}

// mostDigits bounds the integers of JSON that are kept: a text of digits without end is no number of a data set.
const mostDigits = 4300

// Numeral returns the value of a JSON number, which the caller has validated. A number without point and exponent is an
// int if it fits, else a Number.
func Numeral(text string) (any, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	if !strings.ContainsAny(text, ".eE") {
		if len(text) > mostDigits {
			return nil, bad("an integer of %d digits, at most %d are read", len(text), mostDigits)
		}
		return Number(text), nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, bad("no number that 64 bits hold: %.100s", text)
	}
	return n, nil
}

// Unsigned returns the value of an unsigned integer: an int if it fits, else a Number.
func Unsigned(n uint64) any {
	if n <= math.MaxInt {
		return int(n)
	}
	return Number(strconv.FormatUint(n, 10))
}

// decimal returns the value of an unscaled integer in two's complement: an int if it is whole and fits, else a Number
// with all digits of its scale.
func decimal(b []byte, isBig bool, scale int) any {
	n := integer(b, isBig)
	if scale <= 0 {
		if scale < 0 {
			n.Mul(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-scale)), nil))
		}
		if n.IsInt64() {
			return int(n.Int64())
		}
		return Number(n.String())
	}
	digits := new(big.Int).Abs(n).String()
	if len(digits) <= scale {
		digits = strings.Repeat("0", scale-len(digits)+1) + digits
	}
	sign := ""
	if n.Sign() < 0 {
		sign = "-"
	}
	at := len(digits) - scale
	return Number(sign + digits[:at] + "." + digits[at:])
}

// integer returns an integer in two's complement of any width.
func integer(b []byte, isBig bool) *big.Int {
	at := func(i int) byte { return b[len(b)-1-i] } // from the top
	if isBig {
		at = func(i int) byte { return b[i] }
	}
	if len(b) == 0 {
		return new(big.Int)
	}
	top := make([]byte, len(b))
	for i := range b {
		top[i] = at(i)
	}
	n := new(big.Int).SetBytes(top)
	if top[0]>>7 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return n
}

func bad(format string, args ...any) error {
	return millrace.Errorf(millrace.ErrBadSample, "%s", fmt.Sprintf(format, args...))
}
