package pretokenize

import (
	"fmt"

	"millrace/text/tokenize/internal/regex"
)

// GPT2 is the expression of ByteLevel.
const GPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// Split divides a text into the matches of an expression of tokenizer.json and the texts between them.
func Split(expression string) (Stage, error) { return regex.Parse(expression, regex.Oniguruma) }

// Matches divides a text into the matches of an expression of tokenizer.json. An expression that may leave out
// characters is an error.
func Matches(expression string) (Stage, error) { return matches(expression, regex.Oniguruma) }

// Tiktoken divides a text into the matches of tiktoken's expression. An expression that may leave out characters is an
// error.
func Tiktoken(expression string) (Stage, error) { return matches(expression, regex.FancyRegex) }

func matches(expression string, syntax regex.Syntax) (Stage, error) {
	e, err := regex.Parse(expression, syntax)
	if err != nil {
		return nil, err
	}
	if r, ok := e.Gap(); ok {
		return nil, fmt.Errorf("parse the expression %q: it may leave out text that begins with %q (%U)",
			expression, r, r)
	}
	return e, nil
}
