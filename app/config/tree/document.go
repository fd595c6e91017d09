package tree

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Document is a parsed file with the places of its keys.
type Document struct {
	text
	Root   *Node
	Places map[string]Entry // by path: mixture.weights.web, sources.web.path[1]
}

// Read parses the content of a YAML file. Name is for errors.
func Read(name string, content []byte) (*Document, Errors) {
	whole := text{name: name, lines: []string{""}}
	if len(content) > MaxFile {
		return nil, Errors{
			whole.Fail(
				1, 1, 1, "the file is larger than 1 MiB",
				"a mixture file lists patterns, not files: use globs or directories",
			),
		}
	}
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	s := string(content)
	src := newText(name, s)
	if e := checkCharacters(src, s); e != nil {
		return nil, Errors{e}
	}
	root, errs := readTree(src, s)
	if len(errs) > 0 {
		return nil, errs
	}
	return &Document{text: src, Root: root, Places: map[string]Entry{}}, nil
}

// checkCharacters refuses control characters, and text that is not UTF-8.
func checkCharacters(src text, s string) *Error {
	line, column := 1, 1
	for i, r := range s {
		switch {
		case r == '\n':
			line, column = line+1, 0
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			return src.Fail(line, column, 1, "this is not UTF-8 text", "save the file as UTF-8")
		case r == '\r' && !strings.HasPrefix(s[i:], "\r\n"),
			r < ' ' && r != '\t' && r != '\r',
			r == 0x7f,
			r == 0x85,
			r == 0x2028,
			r == 0x2029:
			return src.Fail(line, column, 1, fmt.Sprintf("control character %U", r), "take it out")
		}
		column++
	}
	return nil
}

// Place returns the node of a path. For a path that is not in the file, it returns the nearest mapping around it and
// false.
func (d *Document) Place(path string) (at *Node, written bool) {
	for p := path; p != ""; p = parent(p) {
		if e, ok := d.Places[p]; ok {
			if p == path {
				return e.Value, true
			}
			return e.Key, false
		}
	}
	return d.Root, false
}

// KeyOf returns the node of the key of a path.
func (d *Document) KeyOf(path string) *Node {
	if e, ok := d.Places[path]; ok {
		return e.Key
	}
	at, _ := d.Place(path)
	return at
}

// parent cuts the last part off a path. A source's name may hold dots and brackets, so a cut may fall inside a name.
// Such a path is in no document, and a further cut finds the mapping around it.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }
