package archtest

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// longLines counts lines above 120 columns in Go, Python, protobuf and shell. A tab counts as 4 columns.
func longLines(t *testing.T, _ []source) []offender {
	places := map[string]int{}
	for _, name := range written(t, ".go", ".py", ".proto", ".sh") {
		for _, line := range readLines(t, name) {
			if columns(line) > 120 {
				places[name]++
			}
		}
	}
	return total(places)
}

func columns(line string) int { return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t") }

// nounClause finds clauses that name a thing by a question: "what is read", "what it was". docs/glossary.md has nouns
// for them.
var nounClause = regexp.MustCompile(`(?i)\bwhat (is|it|was|has|are|were|they|nobody|no)\b`)

// clausesInComments returns how many of 1,000 lines of comments and docstrings have such a clause, rounded up.
func clausesInComments(t *testing.T, _ []source) []offender {
	return clauses(t, ".go", ".py", ".proto", ".sh")
}

// clausesInPages returns how many of 1,000 lines of pages have such a clause, rounded up.
func clausesInPages(t *testing.T, _ []source) []offender { return clauses(t, ".md") }

func clauses(t *testing.T, endings ...string) []offender {
	lines, places := 0, map[string]int{}
	for _, name := range written(t, endings...) {
		for _, s := range prose(t, name) {
			lines++
			if nounClause.MatchString(s.text) {
				places[name]++
			}
		}
	}
	found := total(places)
	t.Logf("%d noun clauses in %d lines", found[0].value, lines)
	found[0].value = (1000*found[0].value + lines - 1) / max(lines, 1)
	return found
}
