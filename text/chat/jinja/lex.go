package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace"
)

// token is a piece of a template. kind is "data", "{{", "}}", "{%", "%}", "name", "string", "int", "float", or an
// operator as it is written.
type token struct {
	kind, text string
	line       int
}

type lexer struct {
	source string
	at     int
	out    []token
	strip  bool // the tag before ends with -
	fresh  bool // a line of the template begins here
}

func refuse(line int, format string, a ...any) error {
	return millrace.Errorf(millrace.ErrInvalid, "chat template, line "+strconv.Itoa(line)+": "+format, a...)
}

func (l *lexer) line(at int) int { return 1 + strings.Count(l.source[:at], "\n") }

// lex cuts a template into tokens.
func lex(source string) ([]token, error) {
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{source: source, fresh: true}
	for l.at < len(source) {
		open := -1
		for i := l.at; i+1 < len(source); i++ {
			if source[i] == '{' && strings.IndexByte("{%#", source[i+1]) >= 0 {
				open = i
				break
			}
		}
		if open < 0 {
			l.data(source[l.at:], 0, false)
			break
		}
		var sign byte
		if open+2 < len(source) {
			sign = source[open+2]
		}
		l.data(source[l.at:open], sign, source[open+1] != '{')
		l.at = open
		if err := l.tag(); err != nil {
			return nil, err
		}
	}
	return l.out, nil
}

// data adds the text before a tag. sign is the character behind the tag's opening.
func (l *lexer) data(text string, sign byte, isBlock bool) {
	if l.strip {
		trimmed := strings.TrimLeftFunc(text, isSpace)
		l.fresh = len(trimmed) < len(text) && strings.HasSuffix(text[:len(text)-len(trimmed)], "\n")
		text, l.strip = trimmed, false
	}
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && isBlock:
		start := strings.LastIndexByte(text, '\n') + 1
		if (start > 0 || l.fresh) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
			text = text[:start]
		}
	}
	if text != "" {
		l.out = append(l.out, token{"data", text, l.line(l.at)})
	}
	l.fresh = false
}

// tag adds the tokens of a tag, without a comment's.
func (l *lexer) tag() error {
	kind, start := l.source[l.at:l.at+2], l.at
	l.at += 2
	if kind == "{#" {
		end := strings.Index(l.source[l.at:], "#}")
		if end < 0 {
			return refuse(l.line(start), "a comment has no end")
		}
		l.closed(l.at+end, true)
		return nil
	}
	if l.at < len(l.source) && (l.source[l.at] == '-' || l.source[l.at] == '+' && kind == "{%") {
		l.at++
	}
	l.out = append(l.out, token{kind, kind, l.line(start)})
	first := len(l.out)
	shut := map[string]string{"{{": "}}", "{%": "%}"}[kind]
	depth := 0
	for {
		rest := strings.TrimLeftFunc(l.source[l.at:], isSpace)
		l.at = len(l.source) - len(rest)
		if rest == "" {
			return refuse(l.line(start), "a tag has no end: %s is missing", shut)
		}
		signed := len(rest) > 2 && (rest[0] == '-' || rest[0] == '+' && kind == "{%") && rest[1:3] == shut
		if depth == 0 && (signed || strings.HasPrefix(rest, shut)) {
			if signed {
				l.at++
			}
			l.out = append(l.out, token{shut, shut, l.line(l.at)})
			if kind == "{%" && len(l.out) == first+2 && l.out[first].text == "raw" {
				return l.raw(first-1, start)
			}
			l.closed(l.at, kind == "{%")
			return nil
		}
		t, n, err := l.operand(rest)
		if err != nil {
			return err
		}
		switch t.kind {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		t.line = l.line(l.at)
		l.out, l.at = append(l.out, t), l.at+n
	}
}

// closed moves behind the end of a tag at `at`.
func (l *lexer) closed(at int, isBlock bool) {
	sign := l.source[at-1]
	l.strip, l.fresh = sign == '-', false
	l.at = at + 2
	if isBlock && sign != '-' && sign != '+' && l.at < len(l.source) && l.source[l.at] == '\n' {
		l.at++
		l.fresh = true
	}
}

// raw replaces the tokens of {% raw %} by the text up to {% endraw %}.
func (l *lexer) raw(first, start int) error {
	l.closed(l.at, true)
	l.out = l.out[:first]
	end := strings.Index(l.source[l.at:], "endraw")
	open := -1
	if end >= 0 {
		open = strings.LastIndex(l.source[l.at:l.at+end], "{%")
		end = strings.Index(l.source[l.at+end:], "%}") + l.at + end
	}
	if open < 0 || end < l.at+open {
		return refuse(l.line(start), "{%% raw %%} has no {%% endraw %%}")
	}
	l.data(l.source[l.at:l.at+open], l.source[l.at+open+2], true)
	l.closed(end, true)
	return nil
}

var operators = []string{"//", "**", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ",", ":", ".", "|", "+", "-",
	"*", "/", "%", "~", "<", ">", "=", ";"}

// operand returns the first token of an expression and its length in bytes.
func (l *lexer) operand(rest string) (t token, n int, err error) {
	first, _ := utf8.DecodeRuneInString(rest)
	switch {
	case first == '_' || unicode.IsLetter(first):
		for i, r := range rest {
			if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				return token{kind: "name", text: rest[:i]}, i, nil
			}
		}
		return token{kind: "name", text: rest}, len(rest), nil
	case first >= '0' && first <= '9':
		return numeral(rest)
	case first == '\'' || first == '"':
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case byte(first):
				text, ok := unescape(rest[1:i])
				if !ok {
					return t, 0, refuse(l.line(l.at), "the text %s has an escape that is not read", rest[:i+1])
				}
				return token{kind: "string", text: text}, i + 1, nil
			}
		}
		return t, 0, refuse(l.line(l.at), "a text has no closing quote")
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			return token{kind: op, text: op}, len(op), nil
		}
	}
	return t, 0, refuse(l.line(l.at), "unexpected character %q", first)
}

// numeral reads a number.
func numeral(rest string) (token, int, error) {
	digits := func(i int) int {
		for i < len(rest) && (rest[i] >= '0' && rest[i] <= '9' || rest[i] == '_') {
			i++
		}
		return i
	}
	kind, n := "int", digits(0)
	if n+1 < len(rest) && rest[n] == '.' && rest[n+1] >= '0' && rest[n+1] <= '9' {
		kind, n = "float", digits(n+1)
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		at := n + 1
		if at < len(rest) && (rest[at] == '+' || rest[at] == '-') {
			at++
		}
		if end := digits(at); end > at {
			kind, n = "float", end
		}
	}
	return token{kind: kind, text: strings.ReplaceAll(rest[:n], "_", "")}, n, nil
}

// unescape reads the escapes of a text as Python does.
func unescape(s string) (string, bool) {
	if !strings.Contains(s, `\`) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte(`abfnrtv\'"`, s[i]); at >= 0 {
			b.WriteByte("\a\b\f\n\r\t\v\\'\""[at])
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
		switch {
		case s[i] == '\n':
		case digits > 0:
			if i+digits >= len(s) {
				return "", false
			}
			n, err := strconv.ParseUint(s[i+1:i+1+digits], 16, 32)
			if err != nil || !utf8.ValidRune(rune(n)) {
				return "", false
			}
			b.WriteRune(rune(n))
			i += digits
		case s[i] == 'N' || s[i] >= '0' && s[i] <= '7':
			return "", false
		default:
			b.WriteString(s[i-1 : i+1])
		}
	}
	return b.String(), true
}
