package tokenize

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// compareHF compares the ids of a tokenizer.json with those of its reference, which testdata/hf/make.py has written
// beside it.
func compareHF(t *testing.T, folder string) {
	content, err := os.ReadFile(filepath.Join(folder, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Text string
		IDs  []uint32
	}
	if err := json.Unmarshal(content, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 100 {
		t.Fatalf("%d cases, want at least 100", len(cases))
	}
	e, err := Open(Spec{Path: filepath.Join(folder, "tokenizer.json")})
	if err != nil {
		t.Fatal(err)
	}
	enc := e.NewEncoder()
	wrong := 0
	for _, c := range cases {
		if got := enc.Append(nil, []byte(c.Text)); !slices.Equal(got, c.IDs) {
			if wrong++; wrong <= 5 {
				t.Errorf("%q: got %d, want %d", c.Text, got, c.IDs)
			}
		}
	}
	t.Logf("%d texts, %d differ", len(cases), wrong)
}

func TestTokenizerJSONGivesIDsOfItsReference(t *testing.T) {
	for _, name := range []string{"plain", "added", "digits", "deepseek", "stages", "llama", "gemma", "mistral", "unk",
		"unigram"} {
		t.Run(name, func(t *testing.T) { compareHF(t, filepath.Join("testdata/hf", name)) })
	}
	folder := os.Getenv("MILLRACE_TOKENIZERS")
	found, err := filepath.Glob(filepath.Join(folder, "*", "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if folder != "" {
			t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) { compareHF(t, filepath.Dir(path)) })
		}
	}
}

// writeModel writes a model's directory from a small tokenizer.json with replacements.
func writeModel(t *testing.T, config string, replace ...string) string {
	content, err := os.ReadFile("testdata/hf/added/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("the file has no %s", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	folder := t.TempDir()
	for name, content := range map[string]string{"tokenizer.json": text, "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestModelDirectoryGivesBOSAndEOS(t *testing.T) {
	folder := writeModel(t, `{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "model_max_length": 9}`)
	e, err := Open(Spec{Path: folder, NeedBOS: true, NeedEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := e.BOS()
	eos, _ := e.EOS()
	if bos != 0 || eos != 1 {
		t.Errorf("bos %d, eos %d; want 0, 1", bos, eos)
	}
}

func TestTokenizerJSONIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`{"type":"NFC"}`, `{"type":"Lowercase"}`, `normalizer: the normalizer is "Lowercase"`},
		{`"dropout":null`, `"dropout":0.1`, `model.dropout: it is 0.1`},
		{`"byte_fallback":false`, `"byte_fallback":true`, `model.byte_fallback`},
		{`"type":"BPE"`, `"type":"Unigram"`, `model.type: it is "Unigram"`},
		{`"Isolated"`, `"MergedWithNext"`, `pre_tokenizer.pretokenizers[0].behavior`},
		{`(?i:`, `(?<=x)(?:`, `pre_tokenizer.pretokenizers[0].pattern.Regex`},
		{`"fuse_unk"`, `"unheard_of"`, `unheard_of`},
	} {
		_, err := Open(Spec{Path: writeModel(t, "{}", c.old, c.new)})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: error %v, want %s", c.new, err, c.want)
		}
	}
}

func TestAddedTokensOfConfigMustAgree(t *testing.T) {
	config := `{"added_tokens_decoder": {"999": {"content": "<new>", "special": true}}}`
	_, err := Open(Spec{Path: writeModel(t, config)})
	if err == nil || !strings.Contains(err.Error(), "added_tokens_decoder.999") {
		t.Errorf("error %v, want the name of the token", err)
	}
}
