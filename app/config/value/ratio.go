package value

import (
	"fmt"
	"strings"

	"millrace/app/config/tree"
)

// Ratio is a weight as it was written. Weights are relative, so 1e12 and 0.3333333333333333 are as good as 3. Its value
// is 0 or from 10^-60 to 10^60, in 19 significant digits; further digits are dropped.
type Ratio struct{ Text string }

// The range of weights in package mixing.
const (
	ratioDigits    = 19
	ratioMagnitude = 60
)

// IsZero reports whether the value is 0.
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

// SetText keeps a weight as written.
func (r *Ratio) SetText(text string, c tree.Class) (problem, cure string) {
	if problem, cure = noNumber(text, c); problem != "" {
		return problem, cure
	}
	digits, point, problem := splitDecimal(text)
	switch {
	case problem != "":
		return problem + ": " + tree.Quote(text), "write a decimal number of at least 0, as 0.3"
	case digits != "" && (point <= -ratioMagnitude || point > ratioMagnitude):
		return "is out of range: " + tree.Quote(
			text,
		), "weights are relative: write 0, or a number between 1e-60 and 1e60"
	}
	r.Text = text
	return "", ""
}
