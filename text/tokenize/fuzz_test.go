package tokenize

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/text/tokenize/internal/oracletest"
)

// FuzzOpen opens files of any bytes as each kind of tokenizer. One that opens gives ids of its vocabulary, twice the
// same.
func FuzzOpen(f *testing.F) {
	var ranks strings.Builder
	for i := range 256 {
		fmt.Fprintf(&ranks, "%s %d\n", base64.StdEncoding.EncodeToString([]byte{byte(i)}), i)
	}
	ranks.WriteString("YWI= 256\nYWJj 257\n")
	plain, err := os.ReadFile("testdata/hf/plain/tokenizer.json")
	if err != nil {
		f.Fatal(err)
	}
	tekken, err := os.ReadFile("testdata/tekken/v13.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(3), tekken, "", "camelCase [TOOL]")
	names := []string{"x.tiktoken", "tokenizer.json", "tokenizer.model", "tekken.json"}
	f.Add(uint8(0), []byte(ranks.String()), "gpt2", "abc ab")
	f.Add(uint8(0), []byte(ranks.String()), `\p{L}+|\s+|[^\s\p{L}]+`, "abc ab")
	f.Add(uint8(1), plain, "", "The quick <s> brown")
	f.Add(uint8(2), oracletest.File(f, "bpe_llama.model"), "", "The quick  brown\n")
	f.Add(uint8(2), oracletest.File(f, "unigram_nfkc.model"), "", "ﬁ ①")
	f.Add(uint8(3), []byte(`{"config": {"pattern": "\\p{L}+", "num_vocab_tokens": 258, "default_vocab_size": 260,`+
		`"default_num_special_tokens": 2, "version": "v3"}, `+
		`"vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": null}],`+
		`"special_tokens": [{"rank": 0, "token_str": "<unk>", "is_control": true}]}`), "", "abc")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, kind uint8, content []byte, pattern, text string) {
		path := filepath.Join(dir, names[int(kind)%len(names)])
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := Open(Spec{Path: path, Pattern: pattern})
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		ids := e.Append(nil, []byte(text), func() {})
		for _, id := range ids {
			if int(id) >= e.VocabSize() {
				t.Fatalf("%q has the id %d of %d", text, id, e.VocabSize())
			}
		}
		if again := e.Append(nil, []byte(text), func() {}); !slices.Equal(ids, again) {
			t.Fatalf("%q has the ids %v, then %v", text, ids, again)
		}
	})
}
