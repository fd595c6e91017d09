package setup

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/app/config"
)

// rankFile writes the 256 single bytes and "12" as a rank file whose name is that of a SentencePiece model.
func rankFile(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for b := range 257 {
		token := []byte{byte(b)}
		if b == 256 {
			token = []byte("12")
		}
		fmt.Fprintf(&lines, "%s %d\n", base64.StdEncoding.EncodeToString(token), b)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.model"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func withTokenizer(t *testing.T, base, tokenizer string) *config.Config {
	t.Helper()
	content := "version: 1\ntokenizer:\n  path: tokenizer.model\n" + tokenizer +
		"sequence_length: 16\nglobal_batch_size: 2\nmixture: {weights: {a: 1}}\nsources: {a: {path: a.jsonl, " +
		"format: jsonl}}\n"
	c, err := config.Parse("mixture.yaml", []byte(content), base)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A rank file with unknown content needs keys. The error stands at the wrong key.
func TestTokenizerKeys(t *testing.T) {
	base := rankFile(t)
	given := "  pattern: qwen2\n  specials: {\"<|a|>\": 257, \"<|b|>\": 258}\n  eos: \"<|b|>\"\n"
	c := withTokenizer(t, base, given)
	e, err := Tokenizer(c)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := e.EOS(); id != 258 || !ok || e.Pattern() != "qwen2" || e.VocabSize() != 259 {
		t.Errorf("eos %d (%v), pattern %s, %d ids", id, ok, e.Pattern(), e.VocabSize())
	}
	before := Vocabulary(e)
	for name, keys := range map[string]string{
		"pattern":  strings.Replace(given, "qwen2", "cl100k", 1),
		"specials": strings.Replace(given, "257", "259", 1),
		"eos":      strings.Replace(given, `eos: "<|b|>"`, `eos: "<|a|>"`, 1),
		"bos":      given + "  bos: \"<|a|>\"\n",
	} {
		c := withTokenizer(t, base, keys)
		if e, err := Tokenizer(c); err != nil || Vocabulary(e) == before {
			t.Errorf("another %s does not change the identity: %v", name, err)
		}
	}
	for _, wrong := range []struct{ keys, says string }{
		{"", "mixture.yaml:3:9: open tokenizer " + base +
			"/tokenizer.model: its 257 ranks are not those of a known vocabulary"},
		{"  pattern: qwen2\n  add_eos: true\n", "does not contain its eos"},
		{given + "  add_bos: true\n", "does not contain its bos"},
		{strings.Replace(given, "qwen2", `'\w+'`, 1), "mixture.yaml:4:12: open tokenizer"},
		{strings.Replace(given, "257", "3", 1), "mixture.yaml:5:13: open tokenizer"},
		{strings.Replace(given, `eos: "<|b|>"`, `eos: "</s>"`, 1), "mixture.yaml:6:8: open tokenizer"},
	} {
		_, err := Tokenizer(withTokenizer(t, base, wrong.keys))
		if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%q wanted: %v", wrong.says, err)
		}
	}
	if _, err := Tokenizer(withTokenizer(t, base, "  pattern: qwen2\n  add_eos: false\n")); err != nil {
		t.Errorf("no special token is needed: %v", err)
	}
}
