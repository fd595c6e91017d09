package config

import (
	"fmt"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"millrace/internal/app/config/tree"
)

// Decimal is a number as it was written, never rounded: 0.6 stays six tenths. Its value is at least 0 and below 10^9, with at most
// nine digits after the point, so that any two of them can be multiplied in 128 bits.
type Decimal struct{ Text string }

// Digits that a Decimal may have before and after its point.
const decimalDigits = 9

const pow9 = 1_000_000_000

// Fraction returns the exact value as num/den in lowest terms, den dividing 10^9. The zero Decimal, and a text that no mixture
// file may hold, is 0/1.
func (d Decimal) Fraction() (num, den uint64) {
	n, problem := parseDecimal(d.Text)
	if problem != "" {
		return 0, 1
	}
	g := gcd(n, pow9)
	return n / g, pow9 / g
}

// Billionths returns the exact value times 10^9.
func (d Decimal) Billionths() uint64 {
	n, _ := parseDecimal(d.Text)
	return n
}

// Rat returns the exact value.
func (d Decimal) Rat() *big.Rat {
	num, den := d.Fraction()
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(num), new(big.Int).SetUint64(den))
}

// IsZero tells whether the value is 0.
func (d Decimal) IsZero() bool { num, _ := d.Fraction(); return num == 0 }

// String returns the shortest form of the value: 0.60 and 6e-1 are 0.6.
func (d Decimal) String() string {
	n := d.Billionths()
	whole, rest := n/pow9, n%pow9
	if rest == 0 {
		return strconv.FormatUint(whole, 10)
	}
	return strconv.FormatUint(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%09d", rest), "0")
}

// billionths returns the decimal of so many.
func billionths(n uint64) Decimal { return Decimal{fmt.Sprintf("%d.%09d", n/pow9, n%pow9)} }

// parseDecimal reads digits with a point and an exponent, each optional, into billionths. The problem is empty where it could.
func parseDecimal(text string) (billionths uint64, problem string) {
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
	if whole+fraction == "" || !allDigits(whole) || !allDigits(fraction) {
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
	point = len(digits) - len(fraction) + shift // may lie outside of the digits
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

func allDigits(s string) bool {
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

// mulDiv returns a*b/c rounded down; a quotient that does not fit is the largest uint64.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return ^uint64(0)
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// Bytes is a size in bytes.
type Bytes uint64

// byteUnits are the units a size may have, the largest binary ones first: String uses the first that divides.
var byteUnits = [...]struct {
	name string
	size uint64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

const maxBytes = 1 << 50

// String returns the size in the largest binary unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits[:4] {
		if b > 0 && uint64(b)%u.size == 0 {
			return strconv.FormatUint(uint64(b)/u.size, 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(b), 10)
}

// parseBytes reads 1048576, 512MiB, 1.5 GB.
func parseBytes(text string) (b Bytes, problem string) {
	number, unit := text, uint64(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimRight(rest, " "), u.size
			break
		}
	}
	if allDigits(number) && number != "" { // more digits than a Decimal holds
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n > maxBytes/unit {
			return 0, "is too large"
		}
		return Bytes(n * unit), ""
	}
	whole, fraction, _ := strings.Cut(number, ".")
	if whole == "" || fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return 0, "is not a size"
	}
	n, problem := parseDecimal(number)
	if problem != "" {
		return 0, problem
	}
	size := mulDiv(n, unit, pow9)
	if size > maxBytes {
		return 0, "is too large"
	}
	if hi, lo := bits.Mul64(n, unit); bits.Rem64(hi, lo, pow9) != 0 {
		return 0, "is not a whole number of bytes"
	}
	return Bytes(size), ""
}

// Loaders is a number of loader processes; 0 is auto.
type Loaders struct{ Count uint32 }

const maxLoaders = 256

// String returns auto or the number.
func (l Loaders) String() string {
	if l.Count == 0 {
		return "auto"
	}
	return strconv.FormatUint(uint64(l.Count), 10)
}

// Ratio is a weight as it was written. Weights are relative, so that 1e12 and 0.3333333333333333 are as good as 3: its value is 0 or
// from 10^-60 to 10^60, in 19 significant digits; further ones are dropped.
type Ratio struct{ Text string }

// What mixing takes.
const (
	ratioDigits    = 19
	ratioMagnitude = 60
)

// IsZero tells whether the value is 0.
func (r Ratio) IsZero() bool { digits, _, _ := splitDecimal(r.Text); return digits == "" }

// String returns the shortest form of the value: 0.60 and 6e-1 are 0.6. Equal values have equal forms.
func (r Ratio) String() string {
	digits, point, _ := splitDecimal(r.Text)
	if digits = strings.TrimRight(digits[:min(len(digits), ratioDigits)], "0"); digits == "" {
		return "0"
	}
	switch {
	case point < -decimalDigits+1 || point > ratioDigits:
		return fmt.Sprintf("%se%d", digits, point-len(digits))
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + digits
	case point < len(digits):
		return digits[:point] + "." + digits[point:]
	}
	return digits + strings.Repeat("0", point-len(digits))
}

// setText keeps a weight as written.
func (r *Ratio) setText(text string, c tree.Class) (problem, cure string) {
	if problem, cure = noNumber(text, c); problem != "" {
		return problem, cure
	}
	digits, point, problem := splitDecimal(text)
	switch {
	case problem != "":
		return problem + ": " + tree.Quote(text), "write a decimal number of at least 0, as 0.3"
	case digits != "" && (point <= -ratioMagnitude || point > ratioMagnitude):
		return "is out of range: " + tree.Quote(text), "weights are relative: write 0, or a number between 1e-60 and 1e60"
	}
	r.Text = text
	return "", ""
}
