package filter

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/sources/values"
)

func TestFiltersKeepAndRefuse(t *testing.T) {
	record := map[string]any{
		"quality":   0.75,
		"language":  "en",
		"meta.year": 2021,
		"ok":        true,
		"gone":      nil,
		"my field":  "x",
		"nan":       math.NaN(),
		"big":       1 << 53,
		"price":     values.Number("0.90"),
	}
	for text, keep := range map[string]bool{
		`quality > 0.5 && language == "en"`:                true,
		`quality > 0.5 and language in ["de", "fr"]`:       false,
		`meta.year >= 2020`:                                true,
		`meta?.year < 2020`:                                false,
		`price == 0.9 && price > 0.5`:                      true,
		`ok`:                                               true,
		`not ok || tokens > 100`:                           false,
		`tokens < 100 && bytes == 44`:                      true,
		`(gone ?? 1.0) > 0.9`:                              true,
		`gone == nil`:                                      true,
		`$env["my field"] startsWith "x"`:                  true,
		`language matches "^e[nr]$"`:                       true,
		`len(language) == 2 && upper(language) == "EN"`:    true,
		`any(["a", "en"], # == language)`:                  true,
		`nan > 0 || nan < 0 || nan == 0`:                   false,
		`big + 1 > big`:                                    true, // whole numbers are not floats
		`0.1 + 0.2 == 0.30000000000000004`:                 true,
		`max(meta.year, 3) == meta.year ? ok : false`:      true,
		`quality / 3.0 * 3.0 + 0.1 > 0.84 && 10 % 3 == 1`:  true,
		`language == "en" ? quality > 0.9 : quality > 0.1`: false,
	} {
		f, err := Compile(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		set, _ := NewSet(f)
		var values []any
		for _, name := range set.Fields() {
			values = append(values, record[name])
		}
		for range 2 { // a judge is reused
			if bits, err := set.Judge().Refused(values, 11, 44); err != nil || (bits == 0) != keep {
				t.Errorf("%s: bits %b, %v, want keep %v", text, bits, err, keep)
			}
		}
	}
}

func TestBadExpressionsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "empty",
		"  ":                               "empty",
		"quality >":                        "unexpected token",
		"quality > 2 ** 0.5":               "powers",
		"quality > 2 ^ 2":                  "powers",
		"now().Year() > 2020":              "no function now",
		`date("2020-01-01") < x`:           "no function date",
		`len(repeat("a", 999)) > 1`:        "no function repeat",
		"let x = quality; x > 1":           "let",
		`"en"`:                             "bool",
		"1 + 1":                            "bool",
		`"a" > 1`:                          "mismatched",
		"1 in keys(meta)":                  "no function keys",
		strings.Repeat("a && ", 500) + "a": "maximum allowed nodes",
		strings.Repeat("x", mostBytes+1):   "at most",
		"quality.foo.bar() > 1":            "no function",
	} {
		_, err := Compile(text)
		if err == nil && want == "" {
			continue
		}
		if err == nil || !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestFiltersFailOnUnfitRecords(t *testing.T) {
	for text, values := range map[string][]any{
		"quality > 0.5":                      {nil},
		"quality + 1 > 0":                    {"high"},
		"quality":                            {0.5},
		"len(quality) > 1":                   {3},
		"count(1..1000000, # > 3) > quality": {3},
	} {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(text, err)
		}
		set, _ := NewSet(f)
		_, err = set.Judge().Refused(values, 1, 1)
		if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), text) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", text, err)
		}
		if values[0] == nil && !strings.Contains(err.Error(), "the record has no quality") {
			t.Errorf("%s: %v does not name the field", text, err)
		}
	}
}

func TestSetsAnswerByBits(t *testing.T) {
	compile := func(text string) *Filter {
		f, err := Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	set, err := NewSet(compile("b > 1"), nil, compile("a.x == 2 && b < 5"), compile("tokens > 3"))
	if err != nil || !slices.Equal(set.Fields(), []string{"a.x", "b"}) ||
		!slices.Equal(set.Texts(), []string{"b > 1", "", "a.x == 2 && b < 5", "tokens > 3"}) {
		t.Fatal(set.Fields(), set.Texts(), err)
	}
	j := set.Judge()
	for _, c := range []struct {
		values []any
		tokens int
		want   uint32
	}{{[]any{2, 3}, 4, 0}, {[]any{2, 1}, 4, 0b0001}, {[]any{3, 9}, 0, 0b1100}, {[]any{2, 3}, 3, 0b1000}} {
		if got, err := j.Refused(c.values, c.tokens, 0); err != nil || got != c.want {
			t.Errorf("%v: %b %v, want %b", c.values, got, err, c.want)
		}
	}
	for text, want := range map[string]uint32{"text != nil": Own, "text == nil": 0,
		`lang == "de"`: 0, `lang == "en"`: Own,
		"text != nil && tokens > 3": Own, "true": 0} {
		set, err := NewSet(compile(text), compile("false"))
		if err != nil {
			t.Fatal(err)
		}
		values := []any{"de"}
		if strings.HasPrefix(text, "text") {
			values[0] = nil
		}
		if got, err := set.Judge().RefusedAlone(values); err != nil || got != want {
			t.Errorf("%s without a document: %b %v, want %b", text, got, err, want)
		}
	}
	if bits, err := EmptySet().Judge().RefusedAlone(nil); bits != 0 || err != nil {
		t.Error("the empty set refuses a record")
	}
	for _, text := range []string{"tokens > 3", "bytes < 100"} {
		if set, _ := NewSet(compile(text)); set == nil {
			t.Error(text)
		} else if _, err := set.Judge().RefusedAlone(nil); err == nil {
			t.Errorf("%s is applied without a document", text)
		}
	}
	for _, nested := range []any{[]any{1}, values.Object{}, []byte("x"), []uint32{1}} {
		if _, err := j.Refused([]any{nested, 3}, 4, 0); !errors.Is(err, millrace.ErrBadSample) ||
			!strings.Contains(err.Error(), `field "a.x" is no string, number or boolean`) {
			t.Errorf("%v: %v", nested, err)
		}
	}
	beyond := []any{values.Number("9223372036854775808"), 3}
	if _, err := j.Refused(beyond, 4, 0); !errors.Is(err, millrace.ErrBadSample) ||
		!strings.Contains(err.Error(), `field "a.x" is 9223372036854775808, and a filter reads integers of 64 bits`) {
		t.Errorf("an integer beyond 64 bits: %v", err)
	}
	if set, err := NewSet(nil, nil); set != nil || err != nil || set.Fields() != nil || set.Texts() != nil {
		t.Error("a set without filters is not nil")
	}
	if bits, err := (*Set)(nil).Judge().Refused(nil, 1, 1); bits != 0 || err != nil {
		t.Error("the nil set refuses a record")
	}
	if _, err := NewSet(make([]*Filter, MostOfASource+1)...); !errors.Is(err, millrace.ErrInvalid) {
		t.Error(err)
	}
}

func BenchmarkRefused(b *testing.B) {
	f, _ := Compile(`quality > 0.5 && language == "en" && tokens > 10`)
	set, _ := NewSet(f)
	j, values := set.Judge(), []any{"en", 0.75}
	b.ReportAllocs()
	for b.Loop() {
		if bits, err := j.Refused(values, 100, 400); bits != 0 || err != nil {
			b.Fatal(bits, err)
		}
	}
}
