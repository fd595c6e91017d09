package tree

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// No key of a mixture file holds a text of several lines.
const (
	blockRefused = "YAML blocks of text are not allowed"
	blockCure    = "write the value on one line, in quotes if need be"
)

// blockHeader is the end of a line that begins a block of text.
var blockHeader = regexp.MustCompile(`(^|[\s:-])[|>][-+0-9]{0,2}\s*$`)

// checkLines refuses blocks of text and << before the library's scanner sees them: it takes time quadratic in their
// length.
func checkLines(src text) *Error {
	for i, l := range src.lines {
		if at := strings.Index(withoutComment(l), "<<"); at >= 0 {
			return src.Fail(
				i+1, utf8.RuneCountInString(l[:at])+1, 2, refused[token.MergeKeyType][0],
				refused[token.MergeKeyType][1],
			)
		}
		if at := blockHeader.FindStringIndex(withoutComment(l)); at != nil {
			return src.Fail(
				i+1, utf8.RuneCountInString(l[:strings.LastIndexAny(l[:at[1]], "|>")])+1, 1, blockRefused, blockCure,
			)
		}
	}
	return nil
}

// withoutComment cuts a line at the first # that begins a comment, or would outside of quotes.
func withoutComment(line string) string {
	for i := range len(line) {
		if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[:i]
		}
	}
	return line
}

// refused are the parts of YAML that a mixture file cannot use, each with its cure.
var refused = map[token.Type][2]string{
	token.AnchorType: {"YAML anchors are not allowed", "write the value out where it is needed"},
	token.AliasType: {
		"YAML aliases are not allowed",
		"write the value out; put a text that begins with * in quotes",
	},
	token.MergeKeyType:   {"YAML merge keys are not allowed", "write the keys out"},
	token.TagType:        {"YAML tags are not allowed", "leave the tag out; put a text that begins with ! in quotes"},
	token.DirectiveType:  {"YAML directives are not allowed", "leave the line out"},
	token.LiteralType:    {blockRefused, blockCure},
	token.FoldedType:     {blockRefused, blockCure},
	token.MappingKeyType: {"`? ` keys are not allowed", "write `key: value`"},
}

// checkTokens refuses constructs that are not allowed, and nesting that would exhaust the parser's stack.
func checkTokens(src text, tokens token.Tokens) *Error {
	count, nested, line, onLine := 0, 0, 0, 0
	content, ended := false, false
	for _, t := range tokens {
		if no, ok := refused[t.Type]; ok {
			return src.failToken(t, no[0], no[1])
		}
		if t.Position.Line != line {
			line, onLine = t.Position.Line, 0
		}
		if t.Type == token.CommentType {
			continue
		}
		if count++; count > maxTokens {
			return src.failToken(
				t, "the file has too many YAML tokens", fmt.Sprintf("write at most %d", maxTokens),
			)
		}
		if ended || content && t.Type == token.DocumentHeaderType {
			return src.failToken(t, "a second YAML document is not allowed", "keep one document in the file")
		}
		switch t.Type {
		case token.DocumentEndType:
			ended = true
		case token.MappingStartType, token.SequenceStartType:
			nested++
		case token.MappingEndType, token.SequenceEndType:
			nested--
		case token.SequenceEntryType:
			onLine++
		case token.MappingValueType:
			if nested <= 0 {
				onLine++
			}
		}
		content = content || t.Type != token.DocumentHeaderType
		if nested > maxNested || onLine > maxNested {
			return src.failToken(
				t, "nested too deeply", fmt.Sprintf("a mixture file needs no more than %d levels", maxNested),
			)
		}
	}
	return nil
}

func (t text) failToken(tk *token.Token, msg, cure string) *Error {
	return t.Fail(tk.Position.Line, tk.Position.Column, utf8.RuneCountInString(tk.Value), msg, cure)
}
