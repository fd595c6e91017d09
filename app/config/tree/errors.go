// Package tree reads the YAML of a mixture file into a small tree with the place of every node. Its errors show the
// line. It refuses the parts of YAML that people read in different ways.
package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"millrace"
)

// Error is one mistake in a mixture file. It wraps [millrace.ErrInvalid].
type Error struct {
	File    string // as the user named it
	Line    int    // from 1
	Column  int    // in characters, from 1
	Msg     string // the mistake
	Cure    string // the advice; may be empty
	Excerpt string // the line and a caret below it
	Cause   error  // of a failure that is no mistake in the file; nil: there is none
}

// Error returns file:line:column: message on the first line, then the excerpt and the cure.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
	if e.Excerpt != "" {
		b.WriteString("\n" + e.Excerpt)
	}
	if e.Cure != "" {
		b.WriteString("\n  " + e.Cure)
	}
	return b.String()
}

// Unwrap returns millrace.ErrInvalid and the cause.
func (e *Error) Unwrap() []error { return []error{millrace.ErrInvalid, e.Cause} }

// Errors are all mistakes found in one file, sorted by position.
type Errors []*Error

// maxShown is the number of mistakes that are printed; the others are counted.
const maxShown = 10

// Error returns the mistakes one below the other.
func (e Errors) Error() string {
	parts := make([]string, 0, min(len(e), maxShown)+1)
	for i, x := range e {
		if i == maxShown {
			parts = append(parts, fmt.Sprintf("… and %d more", len(e)-maxShown))
			break
		}
		parts = append(parts, x.Error())
	}
	return strings.Join(parts, "\n")
}

// Unwrap returns the mistakes, so that errors.As finds an *Error and errors.Is finds millrace.ErrInvalid.
func (e Errors) Unwrap() []error {
	list := make([]error, len(e))
	for i, x := range e {
		list[i] = x
	}
	return list
}

// Sorted returns the mistakes by position, without repetitions at one place.
func (e Errors) Sorted() Errors {
	slices.SortStableFunc(e, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.CompactFunc(e, func(a, b *Error) bool {
		return a.Line == b.Line && a.Column == b.Column && a.Msg == b.Msg
	})
}

// text is a mixture file's name and lines, from which excerpts are cut.
type text struct {
	name  string
	lines []string
}

func newText(name, content string) text {
	lines := strings.Split(content, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	if n := len(lines); n > 1 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	return text{name: name, lines: lines}
}

// Fail returns an error at a place. A place outside of the file is moved into it.
func (t text) Fail(line, column, width int, msg, cure string) *Error {
	line = min(max(line, 1), len(t.lines))
	length := utf8.RuneCountInString(t.lines[line-1])
	column = min(max(column, 1), length+1)
	width = min(max(width, 1), max(length+1-column, 1))
	return &Error{
		File: t.name, Line: line, Column: column, Msg: printable(msg), Cure: printable(cure),
		Excerpt: excerpt(t.lines[line-1], line, column, width),
	}
}

// excerptWidth is the number of characters of a line that are shown.
const excerptWidth = 100

// excerpt returns the line with its number and a caret under column; of a long line the part around the column.
func excerpt(line string, number, column, width int) string {
	runes := []rune(strings.Map(flat, line))
	from := 0
	if len(runes) > excerptWidth {
		from = min(max(column-1-excerptWidth/2, 0), len(runes)-excerptWidth)
		runes = runes[from : from+excerptWidth]
	}
	head, tail := "", ""
	if from > 0 {
		head = "…"
	}
	if from > 0 && from+len(runes) < utf8.RuneCountInString(line) ||
		from == 0 && len(runes) < utf8.RuneCountInString(line) {
		tail = "…"
	}
	indent := columns(runes[:min(column-1-from, len(runes))]) + utf8.RuneCountInString(head)
	under := columns(runes[min(column-1-from, len(runes)):min(column-1-from+width, len(runes))])
	return fmt.Sprintf("%5d | %s%s%s\n      | %s%s", number, head, string(runes), tail,
		strings.Repeat(" ", indent), strings.Repeat("^", max(under, 1)))
}

// flat replaces characters that would move a terminal's cursor.
func flat(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case !unicode.IsPrint(r):
		return unicode.ReplacementChar
	}
	return r
}

// columns returns the number of terminal cells of the characters: two for emoji and wide East Asian ones, else one.
func columns(runes []rune) int {
	n := 0
	for _, r := range runes {
		n++
		if unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) ||
			r >= 0x1f300 && r <= 0x1faff {
			n++
		}
	}
	return n
}

// printable keeps a message about a file on one line of a terminal, for any bytes of the file.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// Quote returns a text for a message: in backquotes, and at most 60 characters of it.
func Quote(s string) string {
	if utf8.RuneCountInString(s) > 60 {
		s = string([]rune(s)[:59]) + "…"
	}
	return "`" + s + "`"
}
