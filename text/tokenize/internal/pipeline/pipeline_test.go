package pipeline

import (
	"slices"
	"strings"
	"testing"

	"millrace/text/tokenize/internal/regex"
)

// parts returns the parts of a text, in brackets.
func parts(of Splitter, text string, first bool) string {
	var out strings.Builder
	var s Scratch
	Sequence{of}.Split([]byte(text), first, &s, func(part []byte) { out.WriteString("[" + string(part) + "]") })
	return out.String()
}

func expression(t *testing.T, text string) *regex.Expression {
	t.Helper()
	e, err := regex.Parse(text, regex.Oniguruma)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestSplitters: each splitter divides as the class of its name in tokenizers 0.23 does.
func TestSplitters(t *testing.T) {
	c := NewCharacters()
	for _, x := range []struct {
		name, text, want string
		of               Splitter
	}{
		{"words", "Hey, you  都!", "[Hey][,][you][都][!]", c.Words()},
		{"whitespace split", " a,b\t c ", "[a,b][c]", c.WhitespaceSplit()},
		{"whitespace", "it's 10,5%", "[it]['][s][10][,][5][%]", c.Whitespace()},
		{"digits", "a123b4", "[a][123][b][4]", c.Digits(false)},
		{"each digit", "a123b4", "[a][1][2][3][b][4]", c.Digits(true)},
		{"punctuation", "a.. b", "[a][.][.][ b]", c.Punctuation(Isolated)},
		{"removed", "the-final--countdown", "[the][final][countdown]", At{Literal("-"), Removed, false}},
		{"isolated", "the-final--countdown", "[the][-][final][-][-][countdown]", At{Literal("-"), Isolated, false}},
		{"previous", "the-final--countdown", "[the-][final-][-][countdown]",
			At{Literal("-"), MergedWithPrevious, false}},
		{"next", "the-final--countdown", "[the][-final][-][-countdown]", At{Literal("-"), MergedWithNext, false}},
		{"contiguous", "the-final--countdown", "[the][-][final][--][countdown]",
			At{Literal("-"), Contiguous, false}},
		{"inverted", "the-final--countdown", "[-][-][-]", At{Literal("-"), Removed, true}},
		{"an expression", "ab12c", "[ab][12][c]", At{expression(t, `\d+`), Isolated, false}},
		{"characters", "aäé都b", "[aä][é都][b]", Chars(2)},
	} {
		if got := parts(x.of, x.text, true); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// TestMetaspace: a mark stands for each space, and at the beginning of the texts that get one.
func TestMetaspace(t *testing.T) {
	for _, x := range []struct {
		prepend Prepends
		divides bool
		text    string
		first   bool
		want    string
	}{
		{Always, true, "Hey  you", false, "[_Hey][_][_you]"},
		{Always, false, "Hey you", false, "[_Hey_you]"},
		{Always, true, " Hey", true, "[_Hey]"},
		{Always, true, "_Hey", true, "[_Hey]"},
		{First, true, "Hey", true, "[_Hey]"},
		{First, true, "Hey", false, "[Hey]"},
		{Never, true, "Hey you", true, "[Hey][_you]"},
		{Always, true, "", true, ""},
	} {
		if got := parts(Metaspace{'_', x.prepend, x.divides}, x.text, x.first); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

// TestSequence: each splitter divides the parts of the one before. Only the first part is the document's beginning, and
// a splitter that writes parts anew does not spoil the memory of the one before.
func TestSequence(t *testing.T) {
	c := NewCharacters()
	first := Sequence{At{Literal("|"), Removed, false}, Metaspace{'_', First, true}}
	if got := parts(first, "a b|c", true); got != "[_a][_b][c]" {
		t.Error(got)
	}
	twice := Sequence{Metaspace{'_', Always, true}, Metaspace{'+', Always, true}, c.Punctuation(Isolated)}
	if got := parts(twice, "a b!", true); got != "[+][_][a][+][_][b][!]" {
		t.Error(got)
	}
	if got := parts(Sequence{}, "as it is", true); got != "[as it is]" {
		t.Error(got)
	}
}

// TestByteLevel: the characters of an alphabet stand for bytes, each for its own, and Token turns them back.
func TestByteLevel(t *testing.T) {
	if got := parts(NewByteLevel(true, expression(t, `\p{L}+`)), "é b", true); got != "[Ġ][Ã©][Ġ][b]" {
		t.Error(got)
	}
	if got := parts(NewByteLevel(false, nil), "a b", true); got != "[aĠb]" {
		t.Error(got)
	}
	of, spell := Alphabet(), SpellBytes()
	if len(of) != 256 {
		t.Errorf("the alphabet has %d characters", len(of))
	}
	p := Pipeline{Alphabet: of}
	for b := range 256 {
		p.Tokens = append(p.Tokens, spell(nil, []byte{byte(b)}))
	}
	p.Tokens = append(p.Tokens, []byte("Ġ ")) // a space stands for none
	for b := range 256 {
		if got := p.Token(nil, uint32(b)); !slices.Equal(got, []byte{byte(b)}) {
			t.Errorf("byte %d is spelt as %q and read as %q", b, p.Tokens[b], got)
		}
	}
	if got := string(p.Token(nil, 256)); got != "  " {
		t.Errorf("a token with another character is %q", got)
	}
}

// TestNormalizers: each rewrites as the class of its name in tokenizers 0.23 does.
func TestNormalizers(t *testing.T) {
	c := NewCharacters()
	for _, x := range []struct {
		name, text, want string
		of               Normalizer
	}{
		{"prepend", "Hey", "_Hey", Prepend("_")},
		{"replace", "a  b ", "a__b_", Replace(" ", "_")},
		{"replace matches", "a1b22", "a#b#", ReplaceMatches(expression(t, `\d+`), "#")},
		{"strip", " \ta ", "a", Strip(true, true)},
		{"strip left", " a ", "a ", Strip(true, false)},
		{"strip right", " a ", " a", Strip(false, true)},
		{"nmt", "a\x01\u200b\u2581b\ufffd", "a  b ", Nmt},
		{"clean", "a\x00\tb\u200d", "a b", c.Clean},
		{"part", "a都b", "a 都 b", c.Part},
		{"unaccent", "éa\u0301ü", "eau", c.Unaccent},
		{"strip marks", "ée\u0301", "ée", c.StripMarks},
		{"lower", "ÀİΣ", "ài̇σ", c.Lower},
	} {
		if got := string(x.of([]byte("<"), []byte(x.text))); got != "<"+x.want {
			t.Errorf("%s: %q, want %q behind the first bytes", x.name, got, x.want)
		}
	}
	list, s := Normalizers{Prepend("a"), Strip(true, true), Replace("x", ""), Prepend("never")}, Scratch{}
	if got := string(list[:3].Normalize([]byte("x\xff "), &s)); got != "a\ufffd" {
		t.Errorf("bytes that are not UTF-8: %q", got)
	}
	if got := string(list[2:].Normalize([]byte("xx"), &s)); got != "" {
		t.Errorf("an empty text is rewritten to %q", got)
	}
}

// TestTokens: an id that stands for a byte is the byte, and a mark is a space if the pipeline says so.
func TestTokens(t *testing.T) {
	bytes := [256]uint32{}
	for b := range bytes {
		bytes[b] = uint32(1000 + b)
	}
	p := Pipeline{Tokens: [][]byte{[]byte("▁a▁"), nil}, Bytes: &bytes}
	if got := string(p.Token([]byte("<"), 0)); got != "<▁a▁" {
		t.Errorf("%q", got)
	}
	if got := p.Token(nil, 1000+0xe9); !slices.Equal(got, []byte{0xe9}) {
		t.Errorf("%q", got)
	}
	p.Spaces = true
	if got := string(p.Token(nil, 0)); got != " a " {
		t.Errorf("%q", got)
	}
	m := NewWordLevel([][]byte{[]byte("?"), []byte("a"), nil}, 0)
	var ids []uint32
	for _, part := range []string{"a", "b", ""} {
		ids = m.Append(ids, []byte(part), nil)
	}
	if !slices.Equal(ids, []uint32{1, 0, 0}) {
		t.Errorf("%v", ids)
	}
}
