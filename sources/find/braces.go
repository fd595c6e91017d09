package find

import (
	"fmt"
	"strconv"
	"strings"

	"millrace"
)

// mostExpanded is the largest number of patterns that the braces of one pattern may expand to. It bounds the memory
// that a mistyped range takes.
const mostExpanded = 1 << 20

// expandBraces expands {a,b} and {0000..0146} into one pattern each, leftmost first. Nested lists are expanded inside
// their alternative. Braces without a comma or a range stay as they are, as in a shell.
func expandBraces(pattern string) ([]string, error) {
	out := []string{}
	if err := expandInto(&out, "", pattern); err != nil {
		return nil, fmt.Errorf("expand braces of %q: %w", pattern, err)
	}
	return out, nil
}

func expandInto(out *[]string, head, rest string) error {
	open, end := brace(rest)
	if open < 0 {
		if len(*out) >= mostExpanded {
			return millrace.Errorf(millrace.ErrInvalid, "more than %d paths", mostExpanded)
		}
		*out = append(*out, head+rest)
		return nil
	}
	alternatives, err := alternativesOf(rest[open+1 : end])
	if err != nil {
		return err
	}
	if alternatives == nil {
		return expandInto(out, head+rest[:end+1], rest[end+1:])
	}
	for _, a := range alternatives {
		// The alternative goes in front of the rest, so that the next call expands braces inside it.
		if err := expandInto(out, head+rest[:open], a+rest[end+1:]); err != nil {
			return err
		}
	}
	return nil
}

// brace returns the first balanced pair, -1 if there is none.
func brace(s string) (open, end int) {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '{')
		if i < 0 {
			return -1, -1
		}
		open = from + i
		depth := 0
		for j := open; j < len(s); j++ {
			switch s[j] {
			case '{':
				depth++
			case '}':
				if depth--; depth == 0 {
					return open, j
				}
			}
		}
		from = open + 1
	}
}

// alternativesOf splits the inside of a pair of braces. It returns nil if the inside is no list and no range.
func alternativesOf(inside string) ([]string, error) {
	if parts := splitTop(inside); len(parts) > 1 {
		return parts, nil
	}
	lo, hi, ok := strings.Cut(inside, "..")
	if !ok || !digits(lo) || !digits(hi) {
		return nil, nil
	}
	a, errA := strconv.ParseUint(lo, 10, 63)
	b, errB := strconv.ParseUint(hi, 10, 63)
	if errA != nil || errB != nil || a > b {
		return nil, millrace.Errorf(millrace.ErrInvalid, "range {%s} does not go upwards", inside)
	}
	if b-a >= mostExpanded {
		return nil, millrace.Errorf(millrace.ErrInvalid, "range {%s} has more than %d paths", inside, mostExpanded)
	}
	width := 0
	if lo[0] == '0' || hi[0] == '0' {
		width = max(len(lo), len(hi))
	}
	out := make([]string, 0, b-a+1)
	for n := a; n <= b; n++ {
		out = append(out, fmt.Sprintf("%0*d", width, n))
	}
	return out, nil
}

// splitTop splits at the commas that are in no inner pair of braces.
func splitTop(s string) []string {
	var parts []string
	depth, from := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, s[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, s[from:])
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
