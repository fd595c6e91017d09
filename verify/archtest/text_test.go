package archtest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A sentence is one line of a comment, a docstring or a page.
type sentence struct {
	line int
	text string
}

// prose returns the lines of comments and docstrings of a source file, and the lines of a page outside of code blocks.
func prose(t *testing.T, name string) []sentence {
	t.Helper()
	switch filepath.Ext(name) {
	case ".go":
		return goComments(t, name)
	case ".md":
		return pageLines(readLines(t, name))
	case ".py":
		return pythonComments(readLines(t, name))
	}
	return lineComments(readLines(t, name))
}

func goComments(t *testing.T, name string) (out []sentence) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("parse: %v", err)
		return nil
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			for i, text := range strings.Split(c.Text, "\n") {
				if text = strings.TrimSpace(strings.Trim(text, "/*")); text != "" {
					out = append(out, sentence{fset.Position(c.Pos()).Line + i, text})
				}
			}
		}
	}
	return out
}

// lineComments returns comments that begin with // or # and a space.
func lineComments(lines []string) (out []sentence) {
	for i, line := range lines {
		if text := commentOf(line); text != "" {
			out = append(out, sentence{i + 1, text})
		}
	}
	return out
}

func commentOf(line string) string {
	for _, mark := range []string{"// ", "# "} {
		if i := strings.Index(line, mark); i >= 0 && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
			return line[i+len(mark):]
		}
	}
	return ""
}

// pythonComments returns comments and docstrings: strings in three quotation marks at the beginning of a line.
func pythonComments(lines []string) (out []sentence) {
	const quotes = `"""`
	inside := false
	for i, line := range lines {
		text := strings.TrimSpace(line)
		begins := !inside && strings.HasPrefix(strings.TrimPrefix(text, "r"), quotes)
		if begins {
			_, text, _ = strings.Cut(text, quotes)
			inside = true
		}
		if !inside {
			if text = commentOf(line); text != "" {
				out = append(out, sentence{i + 1, text})
			}
			continue
		}
		if before, _, ends := strings.Cut(text, quotes); ends {
			text, inside = before, false
		}
		if text != "" {
			out = append(out, sentence{i + 1, text})
		}
	}
	return out
}

// pageLines returns the lines of a Markdown page that have text, without code blocks.
func pageLines(lines []string) (out []sentence) {
	code := false
	for i, line := range lines {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "```") {
			code = !code
		} else if !code && text != "" {
			out = append(out, sentence{i + 1, text})
		}
	}
	return out
}

func TestProseIsFound(t *testing.T) {
	python := strings.Split(`"""One line."""
x = 1  # a comment
def f():
    """The first.

    The last."""
    return """no docstring"""`, "\n")
	var got []string
	page := strings.Split("# Title\n```\ncode\n```\n\ntext", "\n")
	for _, s := range append(pythonComments(python), pageLines(page)...) {
		got = append(got, s.text)
	}
	if want := "One line.|a comment|The first.|The last.|# Title|text"; strings.Join(got, "|") != want {
		t.Errorf("found %q", got)
	}
}
