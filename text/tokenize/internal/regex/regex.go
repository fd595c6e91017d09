// Package regex finds the matches of a regular expression by which a tokenizer divides text.
//
// Two engines read such expressions: Oniguruma in Hugging Face's tokenizers, and fancy-regex in tiktoken. Expressions
// here find the matches of these engines, with the same Unicode tables: the leftmost match, alternatives from left to
// right, greedy, lazy and possessive repetitions, atomic groups and lookahead. Everything that the engines read and
// this package does not is refused by its name and its place.
//
// A group is not repeated without bound, so the time of a match is at most the length of the text to the power of the
// number of choices in a row, which is at most [maxChoices]. It is proportional to the length for the expressions of
// public tokenizers.
package regex

import (
	"fmt"
	"unicode/utf8"
)

// Syntax is the engine for which an expression is written.
type Syntax uint8

// The engine of tokenizer.json is Oniguruma in its Ruby syntax. The one of tiktoken is fancy-regex.
const (
	Oniguruma Syntax = iota
	FancyRegex
)

// Expression is a regular expression. It never changes and is safe for concurrent use.
type Expression struct {
	text    string
	start   *step
	classes *classes
	first   uint8 // the class of the characters with which a match begins
	sure    set
}

// Parse reads an expression. An expression that matches the empty text is an error.
func Parse(text string, syntax Syntax) (*Expression, error) {
	t, err := parse(text, syntax)
	if err != nil {
		return nil, fmt.Errorf("parse the expression %q: %w", text, err)
	}
	if n := t.choices(); n > maxChoices {
		return nil, fmt.Errorf("parse the expression %q: it has %d repetitions and alternatives in a row, "+
			"and at most %d can be followed", text, n, maxChoices)
	}
	if t.skippable() {
		return nil, fmt.Errorf("parse the expression %q: it can match the empty text", text)
	}
	e, err := t.compile()
	if err != nil {
		return nil, fmt.Errorf("parse the expression %q: %w", text, err)
	}
	e.text, e.sure = text, t.sure()
	return e, nil
}

// String returns the text of the expression.
func (e *Expression) String() string { return e.text }

// Gap returns a character that no match may contain, because the expression does not match each text that begins with
// it. ok is false if there is none: then matches are end to end.
func (e *Expression) Gap() (r rune, ok bool) {
	surrogates := set{{0xd800, 0xdfff}}
	rest := e.sure.union(surrogates).complement()
	if len(rest) == 0 {
		return 0, false
	}
	return rest[0].lo, true
}

// Next returns the end of the part of t that begins at i, which must be less than len(t) and at the end of a part. A
// part is a match, or the text between two matches.
func (e *Expression) Next(t []byte, i int) int {
	start, end := e.Find(t, i)
	if start == i {
		return end
	}
	return start
}

// Find returns the start and the end of the first match in t from i on, which is at the end of a part. Without a match
// both are len(t).
func (e *Expression) Find(t []byte, i int) (start, end int) {
	for size := 0; i < len(t); i += size {
		var mask uint64
		if mask, size = e.classes.at(t, i); mask>>e.first&1 != 0 {
			if end := e.classes.match(e.start, t, i); end > i {
				return i, end
			}
		}
	}
	return len(t), len(t)
}

// back returns the place of the character that ends at i.
func back(t []byte, i int) int {
	i--
	for limit := max(i-utf8.UTFMax+1, 0); i > limit && !utf8.RuneStart(t[i]); {
		i--
	}
	return i
}
