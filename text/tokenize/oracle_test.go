package tokenize

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// oraclePatterns are the patterns of pip's tiktoken in the dialect of the oracle's engine. It has no possessive
// quantifiers: x++ is (?>x+). It folds no case beyond ASCII, so the long s is spelled out.
func oraclePatterns() map[string]string {
	return map[string]string{
		"r50k_base": `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|(?>\s+)\z|\s+(?!\S)|\s`,
		"cl100k_base": `'(?:[sSſdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|(?>[^\r\n\p{L}\p{N}]?)(?>\p{L}+)|\p{N}{1,3}|` +
			` ?(?>[^\s\p{L}\p{N}]+)[\r\n]*|(?>\s+)\z|\s*[\r\n]|\s+(?!\S)|\s`,
		"o200k_base": strings.Join([]string{
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
				`(?:'(?:[sSſdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))?`,
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
				`(?:'(?:[sSſdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE]))?`,
			`\p{N}{1,3}`, ` ?[^\s\p{L}\p{N}]+[\r\n/]*`, `\s*[\r\n]+`, `\s+(?!\S)`, `\s+`,
		}, "|"),
		"cl100k_base+llama3": `'(?:[sSſdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|` +
			` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		"cl100k_base+qwen2": `'(?:[sSſdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|` +
			` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	}
}

// oracle is an independent, slow and correct implementation with the same ranks.
func oracle(t testing.TB, name string) func(text string) []uint32 {
	t.Helper()
	vocabulary, _, _ := strings.Cut(name, "+")
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(vocabulary + ".tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	bpe, err := tiktoken.NewCoreBPE(ranks, map[string]int{}, oraclePatterns()[name])
	if err != nil {
		t.Fatal(err)
	}
	encoding := tiktoken.NewTiktoken(bpe, &tiktoken.Encoding{Name: name}, nil)
	return func(text string) []uint32 {
		var ids []uint32
		for _, id := range encoding.EncodeOrdinary(text) {
			ids = append(ids, uint32(id))
		}
		return ids
	}
}

// goroot asks the go command, because a test that was built with -trimpath does not know the path.
func goroot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// corpus returns about size bytes of real documents of this machine: Go's sources, tests and pages, with the many
// languages of their test data.
func corpus(t testing.TB, size int) [][]byte {
	t.Helper()
	root := goroot(t)
	var documents [][]byte
	for _, pattern := range []string{
		"README.md", "doc/*.html", "src/strconv/*.go", "src/unicode/utf8/*.go", "src/strings/*.go", "src/net/http/*.go",
		"src/html/*.go",
		"src/compress/testdata/*.txt", "src/testdata/*.txt", "src/text/template/*.go", "src/image/testdata/*.txt",
		"src/cmd/compile/internal/ssa/*.go", "src/runtime/*.go",
	} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		share := size / 6
		for _, path := range paths {
			document, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			document = document[:min(len(document), 50_000)]
			if !utf8.Valid(document) || share < len(document) || size < len(document) {
				continue
			}
			documents = append(documents, document)
			share -= len(document)
			size -= len(document)
		}
	}
	if len(documents) < 10 {
		t.Fatalf("only %d documents below %s", len(documents), root)
	}
	return documents
}

func TestOracleOnRealDocuments(t *testing.T) {
	for _, name := range testEncodings() {
		want := oracle(t, name)
		enc := load(t, name).NewEncoder()
		for _, document := range corpus(t, 250_000) {
			got := enc.Append(nil, document)
			if w := want(string(document)); !slices.Equal(got, w) {
				t.Fatalf("%s: a document of %d bytes that begins with %.80q differs: %s", name, len(document), document,
					firstDifference(t, name, got, w))
			}
		}
	}
}

func firstDifference(t testing.TB, name string, got, want []uint32) string {
	t.Helper()
	e := load(t, name)
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	from := max(0, at-3)
	spell := func(ids []uint32) string {
		text, err := e.Decode(nil, ids[min(from, len(ids)):min(at+4, len(ids))])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	return "at token " + strings.Join([]string{spell(got), spell(want)}, " | ")
}

// FuzzEncode compares with the oracle. The texts have only characters that Go's older Unicode tables have, because the
// oracle uses them.
func FuzzEncode(f *testing.F) {
	g := readGolden(f)
	for _, v := range g.Vectors {
		f.Add(v.Text)
	}
	for seed := range uint64(6) {
		f.Add(string(g.randomText(1000 + seed)[:1500]))
	}
	names := testEncodings()
	wants := make([]func(string) []uint32, len(names))
	encoders := make([]*Encoder, len(names))
	for i, name := range names {
		wants[i] = oracle(f, name)
		encoders[i] = load(f, name).NewEncoder()
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = string(bytes.Map(func(r rune) rune {
			if r == utf8.RuneError || unicode.Is(unicode.Cn, r) {
				return -1
			}
			return r
		}, []byte(text)))
		for i, name := range names {
			got := encoders[i].Append(nil, []byte(text))
			if want := wants[i](text); !slices.Equal(got, want) {
				t.Errorf("%s, %q: ids %v, the oracle says %v: %s", name, text, got, want,
					firstDifference(t, name, got, want))
			}
		}
	})
}
