package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"millrace"
)

// oracle takes the text with encoding/json and raw values. The last of duplicate keys counts. A key that is all the
// rest of the path comes first.
func oracle(line []byte, path []string) (text string, ok bool) {
	if !utf8.Valid(line) || !json.Valid(line) {
		return "", false
	}
	for len(path) > 0 {
		var m map[string]json.RawMessage
		if json.Unmarshal(line, &m) != nil || m == nil {
			return "", false
		}
		if v, ok := m[strings.Join(path, ".")]; ok {
			line = v
			break
		}
		if m[path[0]] == nil {
			return "", false
		}
		line, path = m[path[0]], path[1:]
	}
	var s *string
	if json.Unmarshal(line, &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

var seeds = []string{
	`{"text":"x"}`, `{"a":{"text":"x"},"text":"y"}`, `{"text":"\u00e9\ud83d\ude00"}`, `{"text":"\ud800"}`,
	`{"text":"\ud800\ud800\udc00"}`,
	`{"meta":{"body":"b"},"meta":{"x":1}}`, `{"meta":{"body":"b","body":null}}`, `{"meta":[{"body":"b"}]}`,
	`{"meta":{"body":{"body":"b"}}}`,
	`{"text":"a","t":-0.0e+1}`, `{"text":1e5,"t":-}`, `{"t":1.,"text":""}`, `{"text":tru}`, `{"text":"a"`,
	`{"meta.body":"l","meta":{"body":"n"}}`, `{"meta":{"body":"n"},"meta.body":"l"}`,
	`{"meta.body":null,"meta":{"body":"n"}}`,
	`{"meta.body":"a","meta.body":"b"}`, `{"meta":{"body":"n"},"meta":1}`, `{"meta\u002ebody":"l","meta":{"body":"n"}}`,
	`{"text":"a\`, `{"text":"a\u12`, `[[[[]]]]`,
	`{"text":"aaaaaaaaaaaaaaa\"aaaaaaaaaa\\"}`, `{"":""}`, `{"text":"a" "b":1}`, `{"text" "a"}`, `{"text":,}`, `{,}`,
	`[,]`, `[1,]`, `nul`, ``, ` `, `{"\u0074ext":"k"}`,
}

// FuzzJSONL compares the extractor with encoding/json on single lines.
func FuzzJSONL(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s), "text")
		f.Add([]byte(s), "meta.body")
		f.Add([]byte(s), "a.meta.body")
	}
	f.Fuzz(func(t *testing.T, line []byte, field string) {
		x, err := newExtractor(field)
		if err != nil || bytes.IndexByte(line, '\n') >= 0 {
			return
		}
		got, err := x.text(line)
		want, ok := oracle(line, x.path.Parts)
		switch {
		case err != nil && !errors.Is(err, millrace.ErrBadSample):
			t.Fatalf("%q: %v is no bad sample", line, err)
		case err != nil && (strings.Contains(err.Error(), "lone surrogate") ||
			strings.Contains(err.Error(), "nested deeper")):
			// encoding/json puts U+FFFD in place of surrogates and nests 10,000 deep.
		case (err == nil) != ok || string(got) != want && !strings.Contains(string(line), `\u`):
			t.Fatalf("%q, field %s: got %q, %v, want %q, %v", line, field, got, err, want, ok)
		case err == nil && !utf8.Valid(got):
			t.Fatalf("%q: the text is not UTF-8", line)
		}
	})
}

// TestMutatedLines runs a little of the fuzzer's work in every test run: it replaces, removes and doubles each byte of
// each seed.
func TestMutatedLines(t *testing.T) {
	for _, field := range []string{"text", "meta.body"} {
		x, err := newExtractor(field)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range seeds {
			for i := range s {
				for _, c := range []string{"", s[i:i+1] + s[i:i+1], `"`, `\`, "{", "]", "0", " ", "\x1f", "\x7f",
					"\xff", "u", ","} {
					line := []byte(s[:i] + c + s[i+1:])
					got, err := x.text(line)
					want, ok := oracle(line, x.path.Parts)
					if lone := err != nil && strings.Contains(err.Error(), "lone surrogate"); lone {
						ok, want = false, ""
					}
					if (err == nil) != ok || string(got) != want {
						t.Fatalf("%q, field %s: got %q, %v, want %q, %v", line, field, got, err, want, ok)
					}
				}
			}
		}
	}
}

func TestFieldIsRefused(t *testing.T) {
	for _, field := range []string{".", "a.", ".a", "a..b"} {
		if _, err := newExtractor(field); !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", field, err)
		}
	}
}

// TestExtractorDoesNotAllocate guards the hot path.
func TestExtractorDoesNotAllocate(t *testing.T) {
	x, err := newExtractor("meta.body")
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(`{"id":17,"meta":{"url":"https://example.org","body":"one\ntwo \u00e9"},"score":0.5}`)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := x.text(line); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a line, want 0", n)
	}
}

// BenchmarkExtract measures raw bytes a second of prose with a line break every 80 characters, in ASCII and in other
// scripts.
func BenchmarkExtract(b *testing.B) {
	for name, word := range map[string]string{
		"ascii": "the quick brown fox jumps over the lazy dog, and it was all the same to him\n",
		"mixed": "die süße Öde — 速い茶色の狐が怠け者の犬を飛び越え и снова назад\n",
	} {
		b.Run(name, func(b *testing.B) {
			line, err := json.Marshal(
				map[string]any{"id": "0123456789", "text": strings.Repeat(word, 28), "url": "https://example.org/a/b"})
			if err != nil {
				b.Fatal(err)
			}
			x, err := newExtractor("text")
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := x.text(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
