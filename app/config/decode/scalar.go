package decode

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"millrace/app/config/tree"
	"millrace/app/config/value"
)

func (d *Decoder) setString(v reflect.Value, given string, c tree.Class, r Rules, path string) (problem, cure string) {
	if len(r.enum) > 0 {
		if word, ok := r.aliases[given]; ok {
			given = word
		}
		if !slices.Contains(r.enum, given) {
			return d.unknownValue(path, given, r.enum)
		}
		v.SetString(given)
		return "", ""
	}
	switch {
	case c == tree.Number || c == tree.Boolean:
		return "must be a text, not " + tree.Quote(given), `put it in quotes: "` + given + `"`
	case given == "":
		return "is empty", "write a value, or leave the key out"
	}
	v.SetString(given)
	return "", ""
}

func setBool(v reflect.Value, given string, c tree.Class) (problem, cure string) {
	switch {
	case c != tree.Quoted && given == "true", c != tree.Quoted && given == "false":
		v.SetBool(given == "true")
		return "", ""
	case strings.EqualFold(given, "true"),
		strings.EqualFold(given, "yes"),
		strings.EqualFold(given, "on"),
		given == "1":
		return "must be true or false, not " + tree.Quote(given), "write true"
	case strings.EqualFold(given, "false"),
		strings.EqualFold(given, "no"),
		strings.EqualFold(given, "off"),
		given == "0":
		return "must be true or false, not " + tree.Quote(given), "write false"
	}
	return "must be true or false, not " + tree.Quote(given), "write true or false"
}

func setInteger(v reflect.Value, given string, c tree.Class, r Rules) (problem, cure string) {
	bounds := boundsText(v, r)
	if c == tree.Quoted && value.IsDigits(given) && given != "" {
		return "must be a number, not a text in quotes", "write " + given
	}
	if !value.IsDigits(given) || given == "" || c == tree.Quoted {
		if strings.HasPrefix(given, "-") {
			return "must not be negative: " + tree.Quote(given), bounds
		}
		return "must be a whole number, not " + tree.Quote(given), wholeCure(given, bounds)
	}
	if len(given) > 1 && given[0] == '0' {
		return "has a leading zero: " + tree.Quote(
				given,
			), "write " + strings.TrimLeft(
				given[:len(given)-1], "0",
			) + given[len(given)-1:]
	}
	n, err := strconv.ParseUint(given, 10, 64)
	switch {
	case r.notYet != "" && (err != nil || n > r.Max):
		return fmt.Sprintf("cannot be above %d yet", r.Max), fmt.Sprintf("not yet: %s; write %d", r.notYet, r.Max)
	case err != nil, r.Max > 0 && n > r.Max:
		return "is too large: " + tree.Quote(given), bounds
	case n < r.min:
		return "is too small: " + tree.Quote(given), bounds
	}
	if v.CanInt() {
		v.SetInt(int64(n))
	} else {
		v.SetUint(n)
	}
	return "", ""
}

// wholeCure writes 1e6, 1_000 or 4.0 as a whole number, if it is one.
func wholeCure(given, bounds string) string {
	plain := strings.ReplaceAll(strings.ReplaceAll(given, "_", ""), ",", "")
	if d := (value.Decimal{Text: plain}); plain != "" {
		if n, problem := value.Billionths(plain); problem == "" && n%value.Billion == 0 {
			return "write " + d.String()
		}
	}
	return bounds
}

func boundsText(v reflect.Value, r Rules) string {
	most := r.Max
	if most == 0 && v.CanUint() {
		most = ^uint64(0) >> (64 - v.Type().Bits())
	}
	if r.min == most {
		return fmt.Sprintf("write %d", r.min)
	}
	return fmt.Sprintf("write a whole number from %d to %d, in decimal digits", r.min, most)
}
