package regex

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// golden is a text with the ends of the parts into which an engine divides it.
type golden struct {
	engine, expression, text string
	ends                     []int
}

func (g *golden) UnmarshalJSON(line []byte) error {
	return json.Unmarshal(line, &[]any{&g.engine, &g.expression, &g.text, &g.ends})
}

func (g *golden) syntax() Syntax {
	if g.engine == "fancy_regex" {
		return FancyRegex
	}
	return Oniguruma
}

func parts(e *Expression, text string) (ends []int) {
	for i := 0; i < len(text); {
		i = e.Next([]byte(text), i)
		ends = append(ends, i)
	}
	return ends
}

// testdata/golden.py wrote the cases. MILLRACE_REGEX_GOLDEN names a file with more of them.
func TestPartsAreThoseOfTheEngines(t *testing.T) {
	path := "testdata/golden.json"
	if more := os.Getenv("MILLRACE_REGEX_GOLDEN"); more != "" {
		path = more
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(content, &cases); err != nil {
		t.Fatal(err)
	}
	known := map[string]*Expression{}
	for _, g := range cases {
		e, ok := known[g.engine+g.expression]
		if !ok {
			if e, err = Parse(g.expression, g.syntax()); err != nil {
				t.Fatal(err)
			}
			known[g.engine+g.expression] = e
		}
		if got := parts(e, g.text); !slices.Equal(got, g.ends) {
			t.Errorf("%s, %q: %q has parts that end at %v, want %v", g.engine, g.expression, g.text, got, g.ends)
		}
	}
	if len(cases) < 700 {
		t.Errorf("%d cases, too few", len(cases))
	}
}

func TestGaps(t *testing.T) {
	for expression, gap := range map[string]rune{
		`\s+|\S`:               -1,
		`\p{N}{1,3}`:           0,
		`[^a]++|a?`:            -2,
		`[^a]|a?b`:             'a',
		`a?+a|[^a]`:            'a',
		`(?:xy)?+x|[^x]`:       'x',
		`(?:xy)?x|[^x]`:        -1, // the group gives the x back
		`\s+(?!\S)|\S`:         '\t',
		`\s+(?!\S)|\s|\S+`:     -1,
		`[^\s]{2,3}|\s|[^\sa]`: 'a',
	} {
		e, err := Parse(expression, FancyRegex)
		if gap == -2 {
			if err == nil || !strings.Contains(err.Error(), "empty text") {
				t.Errorf("%q: error %v", expression, err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		got, ok := e.Gap()
		if !ok {
			got = -1
		}
		if got != gap {
			t.Errorf("%q: gap %q, want %q", expression, got, gap)
		}
	}
}

func TestRefusedByPlace(t *testing.T) {
	for expression, want := range map[string]string{
		`a(?<=b)c`:               "at byte 2",
		`\bfoo`:                  `\b cannot be followed`,
		`^a`:                     "'^' cannot be followed here",
		`(a+b)*c`:                "repeated more than 16 times",
		`a?a?(?:b|c{2,3}){6}`:    "it has 14 repetitions",
		`a{2}{3}b`:               "repetition of a repetition",
		`\p{Klingon}`:            `the property "Klingon"`,
		`[[:alpha:]]`:            "POSIX",
		`[a-z`:                   "lacks its ]",
		`(a|b`:                   "lacks its )",
		`a)`:                     "closes no group",
		`(?i:é)`:                 "beyond ASCII",
		`(?i:lass)`:              `"ss" without case`,
		`a*`:                     "empty text",
		`a\q`:                    `\q cannot be followed`,
		`(?P<name>a)`:            "begins with (?P",
		`[a\d--b]`:               "-- in a class",
		`\x{110000}`:             "not the number of a character",
		`[b-a]`:                  "ends before it begins",
		`a{2000}`:                "2000 to 2000 times",
		strings.Repeat("(", 99):  "32 deep",
		strings.Repeat("a", 1e5): "more than 16384 bytes",
		`a\`:                     "more must follow",
		`x[^\s\S]`:               "no characters",
	} {
		if e, err := Parse(expression, Oniguruma); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, error %v, want one with %q", expression, e != nil, err, want)
		}
	}
}

// Parts lie end to end in every text, also in one that is not UTF-8.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\s++$|\s+(?!\S)|\s`, `(?:a|bc){2,3}?[^\d&&\w]+\z`,
		`(?>a+b?)a|\x41\u0042[\p{Han}--]`,
	} {
		f.Add(seed, "I'll 中文 \x80\xff 123\r\n", true)
	}
	f.Fuzz(func(t *testing.T, expression, text string, ruby bool) {
		syntax := FancyRegex
		if ruby {
			syntax = Oniguruma
		}
		e, err := Parse(expression, syntax)
		if err != nil {
			return
		}
		if tree, err := parse(expression, syntax); err != nil || len(text) > 60 || tree.choices() > 3 {
			return // it may take long
		}
		last := 0
		for _, end := range parts(e, text) {
			if end <= last || end > len(text) {
				t.Fatalf("%q: %q has a part from %d to %d", expression, text, last, end)
			}
			last = end
		}
	})
}
