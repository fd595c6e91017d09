package value

import (
	"fmt"
	"strings"

	"millrace/app/config/tree"
)

// Formula is a sum of whole multiples of one input and of its square.
type Formula struct {
	Input     string // tokens or patches; empty without a formula
	Linear    uint64
	Quadratic uint64
}

// SetText reads a sum of terms: 61000*tokens + tokens^2.
func (f *Formula) SetText(text string, _ tree.Class) (problem, cure string) {
	cure = "write a sum of whole multiples of one input and of its square, as " + tree.Quote(
		"61000*tokens + tokens^2",
	) + "; the inputs are tokens and patches"
	for term := range strings.SplitSeq(text, "+") {
		factor, input, found := strings.Cut(strings.TrimSpace(term), "*")
		if !found {
			factor, input = "1", factor
		}
		input, squared := strings.CutSuffix(strings.TrimSpace(input), "^2")
		factor, input = strings.TrimSpace(factor), strings.TrimSpace(input)
		n, wrong := Billionths(factor)
		switch {
		case input != "tokens" && input != "patches":
			return "has a term without tokens or patches: " + tree.Quote(strings.TrimSpace(term)), cure
		case f.Input != "" && f.Input != input:
			return "weighs both tokens and patches: " + tree.Quote(text), cure
		case !IsDigits(factor):
			return "has a factor that is no whole number: " + tree.Quote(factor), cure
		case wrong != "" || len(factor) > 9:
			return "has a factor that is too large: " + tree.Quote(factor), "write at most 9 digits: only ratios count"
		}
		f.Input = input
		if n /= Billion; squared {
			f.Quadratic += n
		} else {
			f.Linear += n
		}
	}
	return "", ""
}

// String returns the formula, terms in one order.
func (f Formula) String() string {
	switch {
	case f.Input == "":
		return ""
	case f.Quadratic == 0:
		return fmt.Sprintf("%d*%s", f.Linear, f.Input)
	}
	return fmt.Sprintf("%d*%s + %d*%s^2", f.Linear, f.Input, f.Quadratic, f.Input)
}
