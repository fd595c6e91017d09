// Package value holds the numbers of a mixture file as they were written. No number that decides content passes
// through floating point.
package value

import (
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"millrace/app/config/tree"
)

// Decimal is a number as it was written, never rounded: 0.6 stays six tenths. Its value is at least 0 and below 10^9,
// with at most nine digits after the point, so that any two of them can be multiplied in 128 bits.
type Decimal struct{ Text string }

// Digits that a Decimal may have before and after its point.
const decimalDigits = 9

// Billion is the number of billionths in 1.
const Billion = 1_000_000_000

// Fraction returns the exact value as num/den in lowest terms, den dividing 10^9. It is 0/1 for
// the zero Decimal and for a text that is no decimal.
func (d Decimal) Fraction() (num, den uint64) {
	n, problem := Billionths(d.Text)
	if problem != "" {
		return 0, 1
	}
	g := gcd(n, Billion)
	return n / g, Billion / g
}

// Billionths returns the exact value times 10^9.
func (d Decimal) Billionths() uint64 {
	n, _ := Billionths(d.Text)
	return n
}

// Rat returns the exact value.
func (d Decimal) Rat() *big.Rat {
	num, den := d.Fraction()
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(num), new(big.Int).SetUint64(den))
}

// IsZero reports whether the value is 0.
func (d Decimal) IsZero() bool { num, _ := d.Fraction(); return num == 0 }

// String returns the shortest form of the value: 0.60 and 6e-1 are 0.6.
func (d Decimal) String() string {
	n := d.Billionths()
	whole, rest := n/Billion, n%Billion
	if rest == 0 {
		return strconv.FormatUint(whole, 10)
	}
	return strconv.FormatUint(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%09d", rest), "0")
}

// FromBillionths returns the decimal with that many billionths.
func FromBillionths(n uint64) Decimal { return Decimal{fmt.Sprintf("%d.%09d", n/Billion, n%Billion)} }

// Billionths reads digits with a point and an exponent, each optional. The problem is empty if the text is a Decimal.
func Billionths(text string) (billionths uint64, problem string) {
	digits, point, problem := splitDecimal(text)
	switch {
	case problem != "" || digits == "":
		return 0, problem
	case point > decimalDigits:
		return 0, "is too large"
	case len(digits)-point > decimalDigits:
		return 0, "has too many digits"
	}
	digits += strings.Repeat("0", decimalDigits+point-len(digits))
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, "is too large"
	}
	return n, ""
}

// splitDecimal reads a number as 0.digits * 10^point, without zeros at either end of digits; those of 0 are empty.
func splitDecimal(text string) (digits string, point int, problem string) {
	if strings.HasPrefix(text, "-") {
		return "", 0, "is negative"
	}
	mantissa, exponent, hasExponent := cutExponent(text)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if whole+fraction == "" || !IsDigits(whole) || !IsDigits(fraction) {
		return "", 0, "is not a number"
	}
	shift := 0
	if hasExponent {
		n, err := strconv.Atoi(exponent)
		if err != nil {
			return "", 0, "is not a number"
		}
		shift = min(max(n, -1000), 1000)
	}
	digits = strings.TrimLeft(whole+fraction, "0")
	point = len(digits) - len(fraction) + shift // may be outside of the digits
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		point = 0
	}
	return digits, point, ""
}

func cutExponent(text string) (mantissa, exponent string, ok bool) {
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return text, "", false
}

// IsDigits reports whether a text has no character but digits.
func IsDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// MulDiv returns a*b/c, rounded down. A quotient that does not fit is the largest uint64.
func MulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// SetText keeps a decimal as written.
func (d *Decimal) SetText(text string, c tree.Class) (problem, cure string) {
	if problem, cure = noNumber(text, c); problem != "" {
		return problem, cure
	}
	if _, problem = Billionths(text); problem != "" {
		return problem + ": " + tree.Quote(
			text,
		), "write a decimal number from 0 to 999999999 with at most 9 digits after the point, as 0.3"
	}
	d.Text = text
	return "", ""
}

// noNumber finds scalars that YAML does not read as a finite number.
func noNumber(text string, c tree.Class) (problem, cure string) {
	if c == tree.Quoted {
		return "must be a number, not a text in quotes", "leave the quotes out"
	}
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case ".nan", "nan":
		return "is not a number: " + tree.Quote(text), "write a decimal number of at least 0, as 0.3"
	case ".inf", "inf", "infinity":
		return "is infinite: " + tree.Quote(text), "write a decimal number of at least 0, as 0.3"
	}
	return "", ""
}
