package config

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"millrace"
)

// Load reads and validates the mixture file at path. Relative paths in it are relative to the file's directory. An error wraps
// millrace.ErrInvalid; mistakes in the file are [Errors].
func Load(path string) (*Config, error) {
	base, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read mixture file: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read mixture file: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read mixture file: %w", err)
	}
	return Parse(path, content, base)
}

// Parse validates the content of a mixture file. The name is for messages. Relative paths are relative to base, an absolute
// directory, where formats are looked up that the patterns do not tell; an empty base looks nothing up. An error is [Errors].
func Parse(name string, content []byte, base string) (*Config, error) {
	doc, errs := newDocument(name, content)
	if len(errs) > 0 {
		return nil, errs.sorted()
	}
	c := &Config{File: name, Base: base, doc: doc}
	d := decoder{document: doc}
	d.decode("", doc.root, reflect.ValueOf(c).Elem(), rules{})
	v := validator{decoder: &d, c: c}
	v.check()
	if len(d.errs) > 0 {
		return nil, d.errs.sorted()
	}
	return c, nil
}

// document is a parsed file and where each of its keys stands.
type document struct {
	text
	root   *node
	places map[string]entry // by path: mixture.weights.web, sources.web.path[1]
}

func newDocument(name string, content []byte) (*document, Errors) {
	whole := text{name: name, lines: []string{""}}
	if len(content) > maxFile {
		return nil, Errors{whole.fail(1, 1, 1, "the file is larger than 1 MiB", "a mixture file lists patterns, not files: use globs or directories")}
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
	return &document{text: src, root: root, places: map[string]entry{}}, nil
}

// checkCharacters refuses what is no UTF-8 text.
func checkCharacters(src text, s string) *Error {
	line, column := 1, 1
	for i, r := range s {
		switch {
		case r == '\n':
			line, column = line+1, 0
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd"):
			return src.fail(line, column, 1, "this is not UTF-8 text", "save the file as UTF-8")
		case r == '\r' && !strings.HasPrefix(s[i:], "\r\n"), r < ' ' && r != '\t' && r != '\r', r == 0x7f, r == 0x85, r == 0x2028, r == 0x2029:
			return src.fail(line, column, 1, fmt.Sprintf("control character %U", r), "take it out")
		}
		column++
	}
	return nil
}

// place returns where a path is written; for one that is not, the nearest mapping around it, by its key.
func (d *document) place(path string) (at *node, written bool) {
	for p := path; p != ""; p = parent(p) {
		if e, ok := d.places[p]; ok {
			if p == path {
				return e.value, true
			}
			return e.key, false
		}
	}
	return d.root, false
}

// keyOf returns where the key of a path is written.
func (d *document) keyOf(path string) *node {
	if e, ok := d.places[path]; ok {
		return e.key
	}
	at, _ := d.place(path)
	return at
}

// parent cuts the last part off a path. Names of sources may hold dots and brackets, so that a cut may fall inside a name; such a
// path is in no document, and the next cut finds the mapping around.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// ErrorAt makes an error at the place of a key, such as sources.web.path, for what only the caller can find out (a file that is
// not there, a vocabulary that cannot be read). It wraps millrace.ErrInvalid.
func (c *Config) ErrorAt(path, msg, cure string) error {
	if c.doc == nil {
		return &Error{File: c.File, Line: 1, Column: 1, Msg: path + ": " + msg, Cure: cure}
	}
	at, _ := c.doc.place(path)
	return c.doc.fail(at.line, at.column, at.width, msg, cure)
}
