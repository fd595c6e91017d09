package mixing

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustWeights(t testing.TB, texts ...string) []Weight {
	t.Helper()
	weights := make([]Weight, len(texts))
	for i, text := range texts {
		w, err := ParseWeight(text)
		if err != nil {
			t.Fatal(err)
		}
		weights[i] = w
	}
	return weights
}

func (w Weight) rat() *big.Rat {
	r, _ := new(big.Rat).SetString(w.String())
	return r
}

func TestParseWeight(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "0.0": "0", "0e99": "0", "0e99999999": "0", "-0": "!negative", "1": "1", "+1": "1", "0.6": "0.6",
		".6": "0.6", "6.": "6", "6e-1": "0.6", "60E-2": "0.6", "0.60": "0.6",
		"1_000": "1000", "1.2e12": "1200000000000", "3e-9": "3e-9", "1e60": "!outside", "9e59": "9e59",
		"1e-60": "1e-60", "9e-61": "!outside", "1e400": "!outside", "1e99999999999": "!outside",
		"0.3333333333333333333333": "0.3333333333333333333", "18446744073709551615": "18446744073709551610",
		"123456789012345678901234": "1234567890123456789e5",
		"":                         "!decimal",
		".":                        "!decimal", "e5": "!decimal", "1e": "!exponent", "1e1.5": "!exponent",
		"1.2.3": "!decimal", "0x10": "!decimal", "1__0": "!decimal", "_1": "!decimal", "1_": "!decimal",
		"1_.5": "!decimal", " 1": "!decimal", "NaN": "!finite", ".nan": "!finite", "-.inf": "!finite",
		"Infinity": "!finite", "-1": "!negative", "--1": "!negative", "½": "!decimal", "1,5": "!decimal",
	} {
		w, err := ParseWeight(text)
		if word, fails := strings.CutPrefix(want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("ParseWeight(%q) = %v, %v; want an error with %q", text, w, err, word)
			}
		} else if err != nil || w.String() != want {
			t.Errorf("ParseWeight(%q) = %v, %v; want %s", text, w, err, want)
		}
	}
}

func TestParseWeightIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(0|[1-9][0-9]{0,7})(\.[0-9]{0,9})?(e[+-]?[0-4]?[0-9])?`).Draw(t, "literal")
		w, err := ParseWeight(text)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := new(big.Rat).SetString(text)
		if w.rat().Cmp(want) != 0 {
			t.Fatalf("ParseWeight(%q) = %s", text, w)
		}
		if again, err := ParseWeight(w.String()); err != nil || again != w {
			t.Fatalf("%q is read back as %v, %v", w, again, err)
		}
	})
}

func drawWeights(t *rapid.T, label string) []Weight {
	literal := rapid.OneOf(
		rapid.Just("0"),
		rapid.StringMatching(`[0-9]{1,3}`),
		rapid.StringMatching(`0\.[0-9]{1,6}`),
		rapid.StringMatching(`[1-9]e-?[1-4]?[0-9]`),
	)
	texts := rapid.SliceOfN(literal, 1, 41).Draw(t, label)
	weights := make([]Weight, len(texts))
	for i, text := range texts {
		weights[i], _ = ParseWeight(text)
	}
	return weights
}

// TestNormaliseKeepsQuota: each share is within one part of the exact rational one. But a positive share never rounds
// to 0; the largest share then pays the part.
func TestNormaliseKeepsQuota(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t, "weights")
		sum := new(big.Rat)
		for _, w := range weights {
			sum.Add(sum, w.rat())
		}
		shares, err := Normalise(weights)
		if sum.Sign() == 0 {
			if !errors.Is(err, ErrNoWeight) {
				t.Fatalf("all-zero weights: %v", err)
			}
			return
		}
		total, limit := 0, 1.0
		exact := make([]*big.Rat, len(weights))
		for i, w := range weights {
			exact[i] = new(big.Rat).Quo(w.rat(), sum)
			exact[i].Mul(exact[i], big.NewRat(One, 1))
			if !w.IsZero() && exact[i].Cmp(big.NewRat(1, 1)) < 0 {
				limit++ // a small one may be raised to 1 at the cost of the largest
			}
		}
		for i, s := range shares {
			total += int(s)
			gap, _ := new(big.Rat).Sub(exact[i], big.NewRat(int64(s), 1)).Float64()
			if weights[i].IsZero() != (s == 0) || gap <= -1.0000001 || gap >= limit+0.0000001 {
				t.Fatalf("weight %s of %v: share %d, exactly %s", weights[i], weights, s, exact[i].FloatString(3))
			}
		}
		if total != One {
			t.Fatalf("shares of %v add up to %d", weights, total)
		}
	})
}

func TestNormaliseTable(t *testing.T) {
	for _, c := range []struct {
		weights string
		want    []uint32
	}{
		{"1", []uint32{One}},
		{"1 1", []uint32{One / 2, One / 2}},
		{"0 7 0", []uint32{0, One, 0}},
		{"1 1 1", []uint32{One/3 + 1, One / 3, One / 3}},
		{"0.6 0.3 0.1", []uint32{644245095, 322122547, 107374182}},
		{"6e5 3e5 1e5", []uint32{644245095, 322122547, 107374182}},
		{"1e30 1e-30", []uint32{One - 1, 1}},
		{"1e-20 1e10 1e-20", []uint32{1, One - 2, 1}},
	} {
		got, err := Normalise(mustWeights(t, strings.Fields(c.weights)...))
		if err != nil || len(got) != len(c.want) {
			t.Fatalf("Normalise(%s) = %d, %v", c.weights, got, err)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("Normalise(%s) = %d, want %d", c.weights, got, c.want)
				break
			}
		}
	}
	if _, err := Normalise(nil); !errors.Is(err, ErrNoWeight) {
		t.Errorf("no weights: %v", err)
	}
}

func TestSharesOfActiveSources(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t, "weights")
		p, err := Proportion(weights)
		if err != nil {
			return
		}
		active := rapid.SliceOfN(rapid.Bool(), len(weights), len(weights)).Draw(t, "active")
		var left []Weight
		total := 0
		for i, s := range p.Shares(active) {
			total += int(s)
			if (s > 0) != (active[i] && !weights[i].IsZero()) {
				t.Fatalf("weight %s, active %v: share %d", weights[i], active[i], s)
			}
			if active[i] {
				left = append(left, weights[i])
			}
		}
		_, err = Normalise(left)
		if want := One; err == nil && total != want || err != nil && total != 0 {
			t.Fatalf("shares add up to %d of %d, %v", total, want, err)
		}
	})
}
