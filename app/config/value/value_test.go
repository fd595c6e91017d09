package value

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestDecimalIsExact compares with math/big's reading of the same text.
func TestDecimalIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([0-9]{1,12}(\.[0-9]{0,11})?|\.[0-9]{1,11})([eE][+-]?[0-9]{1,2})?`).
			Draw(t, "text")
		n, problem := Billionths(text)
		want, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatalf("big.Rat does not read %q", text)
		}
		scaled := new(big.Rat).Mul(want, big.NewRat(Billion, 1))
		fits := scaled.IsInt() && scaled.Num().Cmp(big.NewInt(Billion*Billion)) < 0
		if fits != (problem == "") {
			t.Fatalf("%q: problem %q, value %s", text, problem, want)
		}
		if !fits {
			return
		}
		d := Decimal{Text: text}
		if d.Rat().Cmp(want) != 0 || scaled.Num().Uint64() != n || d.IsZero() != (want.Sign() == 0) {
			t.Fatalf("%q: %s, want %s", text, d.Rat(), want)
		}
		if again, problem := Billionths(d.String()); problem != "" || again != n {
			t.Fatalf("%q: shortest form %q is another number", text, d)
		}
	})
}

func TestDecimalRefuses(t *testing.T) {
	for _, text := range []string{"", ".", "-1", "-0", "+1", "1e", "e5", "1e+", "1..2", "1.2.3", "0x1", "1_0", "nan",
		"1e99999999999999999999", "1e1000", "１", " 1", "1 "} {
		if n, problem := Billionths(text); problem == "" {
			t.Errorf("%q read as %d billionths", text, n)
		}
	}
	if n, problem := Billionths("0e999"); n != 0 || problem != "" {
		t.Errorf("zero with a large exponent: %d %s", n, problem)
	}
}

// TestRatios: every weight keeps its value to 19 digits, and its shortest form is the same however it was written.
func TestRatios(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?`).
			Draw(t, "text")
		want, _ := new(big.Rat).SetString(text)
		var r Ratio
		if problem, _ := r.SetText(text, 0); problem != "" {
			if least, most := big.NewRat(1, 1), new(big.Rat); want.Sign() == 0 ||
				want.Cmp(most.SetFrac(pow10(60), big.NewInt(1))) < 0 &&
					want.Cmp(least.SetFrac(big.NewInt(1), pow10(60))) >= 0 {
				t.Fatalf("%q: %s", text, problem)
			}
			return
		}
		got, ok := new(big.Rat).SetString(r.String())
		if !ok || got.Cmp(want) > 0 || r.IsZero() != (want.Sign() == 0) {
			t.Fatalf("%q is written as %q", text, r)
		}
		// got is want without the digits beyond 19.
		lost := new(big.Rat).Sub(want, got)
		if lost.Mul(lost, new(big.Rat).SetInt(pow10(18))).Cmp(want) > 0 {
			t.Fatalf("%q is written as %q", text, r)
		}
		if again := (Ratio{r.String()}); again.String() != r.String() {
			t.Fatalf("%q has two shortest forms: %q and %q", text, r, again)
		}
	})
	for text, want := range map[string]string{"0.60": "0.6", "6e-1": "0.6", "2.0": "2", "0e9": "0",
		"1e-9": "0.000000001", "1e10": "10000000000",
		"0.3333333333333333": "0.3333333333333333", "1e-12": "1e-12", "1.50e30": "15e29"} {
		if got := (Ratio{text}).String(); got != want {
			t.Errorf("%s is written as %s, want %s", text, got, want)
		}
	}
}

func pow10(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "1": 1, "1B": 1, "1024": 1024, "1KiB": 1 << 10, "512MiB": 512 << 20, "1.5GiB": 3 << 29, "2 GB": 2e9,
		"3kB": 3000, "3KB": 3000, "1TiB": 1 << 40,
		"1000000000000": 1e12, "1TB": 1e12, "0.5KiB": 512, "1125899906842624": 1 << 50,
	} {
		if got, problem := parseBytes(text); got != want || problem != "" {
			t.Errorf("%s: %d %s, want %d", text, got, problem, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1MiB", "1mib", "1M", "1e3", ".5GiB", "1.GiB", "0.3B", "1025TiB",
		"99999999999999999999", "1125899906842625", "9000000TB", "1 2MiB", " 1", "1MiB "} {
		if got, problem := parseBytes(text); problem == "" {
			t.Errorf("%q read as %d", text, got)
		}
	}
	for b, want := range map[Bytes]string{0: "0", 1: "1", 1 << 20: "1MiB", 3 << 29: "1536MiB", 1000: "1000"} {
		if b.String() != want {
			t.Errorf("%d: %s, want %s", b, b, want)
		}
	}
}
