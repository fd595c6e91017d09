package kubernetes

import (
	"fmt"
	"math/big"
	"strings"
)

// milli is the number of parts of a CPU by which CPUs are counted.
const milli = 1000

// quantity reads a number as Kubernetes writes it, such as "500m", "1.5", "2e3" or "4Gi". It returns it in parts of the
// unit, rounded down. No text is 0.
func quantity(text string, parts int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, scale := text, big.NewRat(parts, 1)
	for _, s := range []struct {
		suffix           string
		base, power, per int64
	}{
		{"Ki", 1024, 1, 1}, {"Mi", 1024, 2, 1}, {"Gi", 1024, 3, 1}, {"Ti", 1024, 4, 1}, {"Pi", 1024, 5, 1},
		{"Ei", 1024, 6, 1}, {"n", 1000, 0, 1e9}, {"u", 1000, 0, 1e6}, {"m", 1000, 0, 1e3}, {"k", 1000, 1, 1},
		{"M", 1000, 2, 1}, {"G", 1000, 3, 1}, {"T", 1000, 4, 1}, {"P", 1000, 5, 1}, {"E", 1000, 6, 1},
	} {
		if short, ok := strings.CutSuffix(text, s.suffix); ok {
			power := new(big.Int).Exp(big.NewInt(s.base), big.NewInt(s.power), nil)
			number, scale = short, scale.Mul(scale, new(big.Rat).SetFrac(power, big.NewInt(s.per)))
			break
		}
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok || len(number) > 32 || strings.ContainsAny(number, "/_xXpP") {
		return 0, fmt.Errorf("%q is no quantity of Kubernetes, such as 500m or 4Gi", text)
	}
	value.Mul(value, scale)
	whole := new(big.Int).Div(value.Num(), value.Denom())
	if !whole.IsInt64() {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return whole.Int64(), nil
}
