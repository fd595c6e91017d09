package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// foreign lists files of other projects that comments and pages name.
var foreign = map[string]string{
	"mix.py": "Grain",
	"megatron/core/num_microbatches_calculator.py": "Megatron-LM",
	"llama3/tokenizer.py":                          "llama-models",
	"llama4/tokenizer.py":                          "llama-models",
	"tokenizers/qwen_tokenizer.py":                 "Qwen",
	"qwen_tokenizer.py":                            "Qwen",
	"openai_public.py":                             "tiktoken",
	"sentencepiece_model.proto":                    "SentencePiece",
	"Encodings.md":                                 "the Parquet format",
	"lz4_Block_format.md":                          "LZ4",
}

var (
	citedFile = regexp.MustCompile(`[\w./-]*\w\.(?:go|py|proto|sh|md)\b(?:#[\w-]+)?`)
	citedLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	citedURL  = regexp.MustCompile(`https?://\S+`)
	// citedPage is a page of ours in a string: advice of an error message.
	citedPage = regexp.MustCompile(`\bdocs/[\w./-]+\.md\b(?:#[\w-]+)?`)
	// elsewhere finds citations that a reader of this repository cannot follow.
	elsewhere = regexp.MustCompile(`§|\.\./shared|` +
		`\b(DESIGN|PLANNING|STYLE|CONTRACT|RELIABILITY|FORMATS|DELIVERY|PEERS|BASELINES|REVIEW)\b`)
)

// tree holds the files of the repository and the headings of its pages.
type tree struct {
	t     *testing.T
	files map[string]bool // paths below the root
	names map[string]bool // every end of a path that begins after a slash
	heads map[string]map[string]bool
}

func newTree(t *testing.T) *tree {
	t.Helper()
	x := &tree{t: t, files: map[string]bool{}, names: map[string]bool{}, heads: map[string]map[string]bool{}}
	for _, name := range written(t, "") {
		x.files[name] = true
		for end := name; ; {
			x.names[end] = true
			_, rest, ok := strings.Cut(end, "/")
			if !ok {
				break
			}
			end = rest
		}
	}
	return x
}

// missing returns why a citation in a file leads nowhere, "" if its target exists.
func (x *tree) missing(from, cited string) string {
	path, anchor, _ := strings.Cut(cited, "#")
	found := from
	if path != "" {
		found = ""
		for _, p := range []string{filepath.Join(filepath.Dir(from), path), filepath.Clean(path)} {
			if _, err := os.Stat(filepath.Join(root, p)); err == nil {
				found = p
				break
			}
		}
		if found == "" && !x.names[path] {
			return "there is no such file"
		}
	}
	if anchor != "" && found != "" && !x.headings(found)[anchor] {
		return "the page has no such section"
	}
	return ""
}

// headings returns the anchors of a page, as GitHub makes them.
func (x *tree) headings(page string) map[string]bool {
	if x.heads[page] == nil {
		x.heads[page] = map[string]bool{}
		for _, s := range pageLines(readLines(x.t, page)) {
			if title := strings.TrimLeft(s.text, "#"); title != s.text {
				x.heads[page][slug(title)] = true
			}
		}
	}
	return x.heads[page]
}

func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(title))
}

// citations returns the files and sections that a line of prose cites.
func citations(text string) (cited []string) {
	text = citedURL.ReplaceAllString(text, "")
	for _, m := range citedLink.FindAllStringSubmatch(text, -1) {
		cited = append(cited, m[1])
	}
	for _, c := range citedFile.FindAllString(citedLink.ReplaceAllString(text, ""), -1) {
		if strings.Trim(c, "./") == c && !strings.HasPrefix(c, "_") && foreign[strings.SplitN(c, "#", 2)[0]] == "" {
			cited = append(cited, c)
		}
	}
	return cited
}

// TestCitationsExist: a reader of this repository can follow every citation of a comment, a docstring and a page.
func TestCitationsExist(t *testing.T) {
	x := newTree(t)
	for _, name := range written(t, ".go", ".py", ".proto", ".sh", ".md") {
		for _, s := range prose(t, name) {
			if found := elsewhere.FindString(s.text); found != "" {
				t.Errorf("%s:%d: %q leads out of this repository: %s", name, s.line, found, s.text)
			}
			for _, c := range citations(s.text) {
				if why := x.missing(name, c); why != "" {
					t.Errorf("%s:%d: %s: %s", name, s.line, c, why)
				}
			}
		}
		if filepath.Ext(name) == ".md" {
			continue
		}
		for i, line := range readLines(t, name) {
			for _, c := range citedPage.FindAllString(line, -1) {
				if why := x.missing("", c); why != "" {
					t.Errorf("%s:%d: %s: %s", name, i+1, c, why)
				}
			}
		}
	}
}

func TestCitationsAreRead(t *testing.T) {
	x := newTree(t)
	for text, want := range map[string]string{
		"as docs/bytes-on-disk.md#values says":          "",
		"as bytes-on-disk.md#nothing says":              "bytes-on-disk.md#nothing: the page has no such section",
		"see nothing.md":                                "nothing.md: there is no such file",
		"[bodies](#bodies-orchestrator), table_test.go": "",
		"[bodies](#bodies)":                             "#bodies: the page has no such section",
		"nothing_test.go has cases":                     "nothing_test.go: there is no such file",
		"of https://example.org/x.go":                   "",
	} {
		got := ""
		for _, c := range citations(text) {
			if why := x.missing("docs/bytes-on-disk.md", c); why != "" {
				got = fmt.Sprintf("%s: %s", c, why)
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
