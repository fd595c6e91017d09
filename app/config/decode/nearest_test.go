package decode

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestDistance compares with the plain recursion.
func TestDistance(t *testing.T) {
	var slow func(a, b string) int
	slow = func(a, b string) int {
		if a == "" || b == "" {
			return len(a) + len(b)
		}
		best := min(slow(a[1:], b)+1, slow(a, b[1:])+1)
		if a[0] == b[0] {
			best = min(best, slow(a[1:], b[1:]))
		}
		if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
			best = min(best, slow(a[2:], b[2:])+1)
		}
		return min(best, slow(a[1:], b[1:])+1)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringMatching(`[ab_]{0,5}`).Draw(t, "a"), rapid.StringMatching(`[ab_]{0,5}`).Draw(t, "b")
		if got, want := distance(a, b), slow(a, b); got != want {
			t.Fatalf("%q %q: %d, want %d", a, b, got, want)
		}
	})
	for given, want := range map[string]string{"pakcing": "packing", "PACKING": "packing", "sed": "seed", "zzz": "",
		strings.Repeat("x", 1000): ""} {
		if got := Nearest(given, []string{"packing", "seed", "stop"}); got != want {
			t.Errorf("nearest to %.20q is %q, want %q", given, got, want)
		}
	}
}
