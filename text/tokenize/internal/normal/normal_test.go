package normal

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func normal(text string) string { return string(CurrentC(nil, []byte(text))) }

// TestGolden compares with the library whose tokenizers are followed.
func TestGolden(t *testing.T) {
	content, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ Text, C, D, KC, KD string }
	if err := json.Unmarshal(content, &cases); err != nil || len(cases) < 500 {
		t.Fatal(len(cases), err)
	}
	for _, c := range cases {
		for name, form := range map[string]struct {
			normalise func(dst, text []byte) []byte
			want      string
		}{"C": {C, c.C}, "D": {D, c.D}, "KC": {KC, c.KC}, "KD": {KD, c.KD}} {
			if got := string(form.normalise(nil, []byte(c.Text))); got != form.want {
				t.Errorf("%s of %+q: %+q, want %+q", name, c.Text, got, form.want)
			}
		}
	}
}

func TestFormC(t *testing.T) {
	marks := strings.Repeat("\u0301", 40)
	for text, want := range map[string]string{
		"":                              "",
		"plain":                         "plain",
		"e\u0301":                       "é",
		"x\u0301":                       "x\u0301",
		"s\u0323\u0307":                 "\u1e69",
		"s\u0307\u0323":                 "\u1e69",
		"\u1100\u1161\u11a8":            "\uac01",
		"\u212b":                        "\u00c5",
		"\u0958":                        "\u0915\u093c", // composition exclusion
		"\u0344":                        "\u0308\u0301",
		"a" + marks + "\u0316b":         "á\u0316" + marks[2:] + "b", // no joiner after many marks
		"\xffe\u0301\xc3":               "\xffé\xc3",
		"e\xff\u0301":                   "e\xff\u0301",
		"\u09c7\u09be \U00011131\u0301": "\u09cb \U00011131\u0301",
	} {
		if got := normal(text); got != want {
			t.Errorf("%+q: %+q, want %+q", text, got, want)
		}
	}
}

// x/text's own form is right if no run of marks is long.
func TestAgreesWithText(t *testing.T) {
	var interesting []rune
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		if p := norm.NFC.PropertiesString(string(r)); !p.BoundaryBefore() || p.Decomposition() != nil {
			interesting = append(interesting, r)
		}
		if got, want := normal(string(r)+"\u0301"), norm.NFC.String(string(r)+"\u0301"); got != want {
			t.Fatalf("%U: %+q, want %+q", r, got, want)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		var text strings.Builder
		for range 1 + random.IntN(12) {
			switch random.IntN(6) {
			case 0:
				text.WriteByte("a e\nO1"[random.IntN(6)])
			case 1:
				text.WriteRune(rune(0x1100 + random.IntN(0x100)))
			default:
				text.WriteRune(interesting[random.IntN(len(interesting))])
			}
		}
		got := normal(text.String())
		if want := norm.NFC.String(text.String()); got != want {
			t.Fatalf("%+q: %+q, want %+q", text.String(), got, want)
		}
		if again := normal(got); again != got {
			t.Fatalf("%+q: the normal form of %+q is %+q", text.String(), got, again)
		}
	}
}

func FuzzForms(f *testing.F) {
	f.Add("e\u0301 \xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, form := range []func(dst, text []byte) []byte{CurrentC, C, D, KC, KD} {
			got := string(form(nil, []byte(text)))
			if string(form(nil, []byte(got))) != got {
				t.Errorf("%q is not the normal form of %q", got, text)
			}
			if utf8.ValidString(text) != utf8.ValidString(got) {
				t.Errorf("%q becomes %q", text, got)
			}
		}
	})
}
