package share

import (
	"cmp"
	"slices"
	"strings"
)

// Compare orders the names of loaders: by the last number in them, then by the numbers before, then as texts. So
// loader-10 comes after loader-2, and the first loaders of all hosts come before the second ones.
func Compare(a, b string) int {
	x, y := numbers(a), numbers(b)
	for i := range min(len(x), len(y)) {
		if c := cmp.Or(cmp.Compare(len(x[i]), len(y[i])), strings.Compare(x[i], y[i])); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// numbers returns the decimal numbers in a name without leading zeros, the last one first.
func numbers(name string) []string {
	out := strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' })
	for i := range out {
		out[i] = strings.TrimLeft(out[i], "0")
	}
	slices.Reverse(out)
	return out
}
