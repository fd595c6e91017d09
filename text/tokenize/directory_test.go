package tokenize

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"millrace/text/tokenize/internal/oracletest"
)

// content returns the content of a file.
func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// directory writes a model's directory from names and contents of files.
func directory(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for ; len(files) > 0; files = files[2:] {
		if err := os.WriteFile(filepath.Join(dir, files[0]), []byte(files[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// testdata/directories/make.py wrote the cases with sentencepiece.
func TestDirectoryWithSentencePieceModelGivesIDsOfItsReference(t *testing.T) {
	for name, want := range map[string]struct{ bos, eos string }{
		"bpe": {"<s>", "<|end|>"}, "unigram": {"<|im_start|>", "</s>"},
	} {
		dir := filepath.Join("testdata/directories", name)
		e, err := Open(Spec{Path: dir, NeedBOS: true, NeedEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		bos, _ := e.BOS()
		eos, _ := e.EOS()
		if specials := e.Specials(); specials[bos] != want.bos || specials[eos] != want.eos || e.Name() != name {
			t.Errorf("%s: bos %s, eos %s, want %v", e.Name(), specials[bos], specials[eos], want)
		}
		names := slices.Sorted(maps.Values(e.Specials()))
		all := []string{"</s>", "<s>", "<start>", "<tool>", "<unk>", "<|end|>", "<|im_start|>"}
		if !slices.Equal(names, all) {
			t.Errorf("%s: special tokens %q, want %q", name, names, all)
		}
		for id, text := range e.Specials() {
			if got, err := e.Decode(nil, []uint32{id}); err != nil || string(got) != text {
				t.Errorf("%s: %q decodes to %q, %v", name, text, got, err)
			}
		}
		var cases []oracletest.Case
		if err := json.Unmarshal([]byte(content(t, filepath.Join(dir, "cases.json"))), &cases); err != nil {
			t.Fatal(err)
		}
		enc, seen := e.NewEncoder(), map[uint32]bool{}
		for _, c := range cases {
			got := enc.Append(nil, []byte(c.Text))
			if !slices.Equal(got, c.IDs) {
				t.Errorf("%s: %q became %v, not %v", name, c.Text, got, c.IDs)
			}
			for _, id := range got {
				seen[id] = true
			}
		}
		for id, text := range e.Specials() {
			if seen[id] && text != "<unk>" {
				t.Errorf("%s: a text has the special token %s", name, text)
			}
		}
	}
}

// TestDirectoryWithoutFurtherFilesIsItsFile: a run may name the file or its directory.
func TestDirectoryWithoutFurtherFilesIsItsFile(t *testing.T) {
	for _, c := range []struct{ name, path string }{
		{"tokenizer.model", "testdata/directories/bpe/tokenizer.model"},
		{"tekken.json", "testdata/tekken/v13.json"},
		{"qwen.tiktoken", published(t, "r50k_base")},
		{"tokenizer.model", published(t, "r50k_base")},
		{"tiktoken.model", published(t, "r50k_base")},
	} {
		file, err := Open(Spec{Path: c.path})
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(Spec{Path: directory(t, c.name, content(t, c.path), "README.md", "x")})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if e.Fingerprint() != file.Fingerprint() {
			t.Errorf("%s: its directory has another fingerprint", c.name)
		}
		text := []byte("Größe <s> 12  \n")
		want := file.NewEncoder().Append(nil, text)
		if got := e.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
			t.Errorf("%s: ids %d, want %d", c.name, got, want)
		}
	}
}

func TestDirectoryWithSeveralTokenizersHasAnOrder(t *testing.T) {
	tekken := content(t, "testdata/tekken/v13.json")
	model := content(t, "testdata/directories/bpe/tokenizer.model")
	for _, c := range []struct{ want, removed string }{
		{"BPE over characters", "tokenizer.json"}, {`[^\r\n\p{L}`, "tekken.json"}, {"SentencePiece", "tokenizer.model"},
		{"r50k", ""},
	} {
		files := []string{"tokenizer.json", content(t, "testdata/hf/llama/tokenizer.json"), "tekken.json", tekken,
			"tokenizer.model", model, "r50k.tiktoken", content(t, published(t, "r50k_base"))}
		for i := 0; i < len(files) && c.removed != ""; i += 2 {
			if files[i] == c.removed {
				files = files[i:]
				break
			}
		}
		if c.removed == "" {
			files = files[6:]
		}
		e, err := Open(Spec{Path: directory(t, files...)})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Pattern(), c.want) {
			t.Errorf("with %s and later files: %s, want %s", files[0], e.Pattern(), c.want)
		}
	}
}

// decoder returns a tokenizer_config.json with added tokens, and more keys.
func decoder(more string, tokens ...string) string {
	return `{"added_tokens_decoder": {` + strings.Join(tokens, ", ") + `}` + more + `}`
}

const special = `, "special": true`

func TestFilesBesideTekkenNameItsSpecials(t *testing.T) {
	plain, err := Open(Spec{Path: "testdata/tekken/v13.json"})
	if err != nil {
		t.Fatal(err)
	}
	size := uint32(plain.VocabSize())
	config := decoder(`, "eos_token": "<call>"`, `"1": `+added("<s>", special), `"7": `+added("<call>", special),
		`"2": `+added("<stop>", special))
	e, err := Open(Spec{Path: directory(t, "tekken.json", content(t, "testdata/tekken/v13.json"),
		"tokenizer_config.json", config, "generation_config.json", `{"eos_token_id": 2}`), NeedEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	bos, _ := e.BOS()
	if eos, _ := e.EOS(); bos != 1 || eos != 7 || e.Specials()[2] != "<stop>" || uint32(e.VocabSize()) != size {
		t.Errorf("bos %d, eos %d, id 2 is %q of %d ids", bos, eos, e.Specials()[2], e.VocabSize())
	}
}

func TestFilesBesideRanksNameTheirSpecials(t *testing.T) {
	ranks := content(t, ranksFile(t, "own.tiktoken", "12"))
	config := decoder("", `"257": `+added("<|a|>", special), `"300": `+added("<|end|>", special))
	dir := directory(t, "own.tiktoken", ranks, "tokenizer_config.json", config, "generation_config.json",
		`{"eos_token_id": 300}`)
	e, err := Open(Spec{Path: dir, Pattern: "cl100k", NeedEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	if eos, _ := e.EOS(); eos != 300 || e.VocabSize() != 301 || len(e.Specials()) != 2 {
		t.Errorf("eos %d of %d ids, special tokens %v", eos, e.VocabSize(), e.Specials())
	}
	_, err = Open(Spec{Path: dir, NeedEOS: true})
	if err == nil || !strings.Contains(err.Error(), "does not contain its pattern;") ||
		!strings.Contains(err.Error(), "as `pattern: cl100k` (") {
		t.Errorf("error %v, want one for the pattern alone", err)
	}
}

// TestSpecialsOfMixtureCountMoreThanFilesBeside: they may name tokens that the files do not call special.
func TestSpecialsOfMixtureCountMoreThanFilesBeside(t *testing.T) {
	ranks := content(t, ranksFile(t, "own.tiktoken", "12"))
	dir := directory(t, "own.tiktoken", ranks, "tokenizer_config.json", decoder("", `"257": `+added("<|a|>", "")))
	_, err := Open(Spec{Path: dir, Pattern: "cl100k"})
	if err == nil || !strings.Contains(err.Error(), "is not special") {
		t.Errorf("error %v, want one for a token that is not special", err)
	}
	e, err := Open(Spec{Path: dir, Pattern: "cl100k", Specials: map[string]uint32{"<|a|>": 257, "<|b|>": 258},
		EOS: "<|b|>", NeedEOS: true})
	if err != nil {
		t.Fatal(err)
	}
	if eos, _ := e.EOS(); eos != 258 || e.Specials()[257] != "<|a|>" {
		t.Errorf("eos %d, special tokens %v", eos, e.Specials())
	}
}

func TestGenerationConfigBesideSentencePieceModel(t *testing.T) {
	model := string(oracletest.File(t, "bpe_nfkc.model")) // <sep> is the user-defined symbol 5
	for _, c := range []struct{ config, generation, want string }{
		{`{}`, `{"eos_token_id": 5}`, "</s>"}, // the model names one
		{`{"eos_token": "<sep>"}`, `{}`, "<sep>"},
		{`{"eos_token": "<gone>"}`, `{}`, `eos is "<gone>", which is none`},
	} {
		e, err := Open(Spec{Path: directory(t, "tokenizer.model", model, "tokenizer_config.json", c.config,
			"generation_config.json", c.generation), NeedEOS: true})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			eos, _ := e.EOS()
			got = e.Specials()[eos]
			if ids := e.NewEncoder().Append(nil, []byte("a<sep>b")); slices.Contains(ids, eos) {
				t.Errorf("the text has the eos %d: %d", eos, ids)
			}
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s with %s: got %q, want %q", c.generation, c.config, got, c.want)
		}
	}
}

func TestDirectoryIsRefusedByName(t *testing.T) {
	model := content(t, "testdata/directories/bpe/tokenizer.model")
	unprefixed := content(t, "testdata/directories/unigram/tokenizer.model")
	ranks := content(t, published(t, "r50k_base"))
	many := directory(t, "own.tiktoken", content(t, ranksFile(t, "own.tiktoken", "12")), "generation_config.json",
		`{"eos_token_id": [7, 8]}`)
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{"tokenizer.model", model, "tokenizer_config.json", `{"tokenizer_class": "XLNetTokenizer"}`},
			`the tokenizer_class is "XLNetTokenizer"`},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", `{"add_prefix_space": false}`},
			"add_prefix_space is false, and tokenizer.model says the opposite"},
		{[]string{"tokenizer.model", unprefixed, "tokenizer_config.json", `{"add_prefix_space": true}`},
			"add_prefix_space is true"},
		{[]string{"x.tiktoken", ranks, "tokenizer_config.json", `{"add_prefix_space": true}`},
			"add_prefix_space is true"},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", `{"do_lower_case": true}`}, "do_lower_case"},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", `{"sp_model_kwargs": {"nbest_size": -1}}`},
			"sp_model_kwargs has nbest_size"},
		{[]string{"tokenizer.model", model, "added_tokens.json", `{"<pad>": 900}`}, `added_tokens.json: "<pad>"`},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", decoder("", `"900": `+added("<x>", ""))},
			`added_tokens_decoder.900: "<x>" is not special`},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", decoder("", `"2": `+added("</s>", ""))},
			`added_tokens_decoder.2: "</s>" is not special`},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", decoder("", `"5": `+added("</s>", special))},
			`"</s>" has the id 2 in the tokenizer's file`},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", decoder("", `"300": `+added("<x>", special))},
			`has the id of the token`},
		{[]string{"tokenizer.model", model, "tokenizer_config.json", decoder("", `"2097152": `+added("<x>", special))},
			"has an id behind"},
		{[]string{"x.tiktoken", ranks, "tokenizer_config.json", decoder("", `"300": `+added("<x>", special))},
			"has the id of the token"},
		{[]string{"x.tiktoken", ranks, "y.tiktoken", ranks}, "several rank files: x.tiktoken, y.tiktoken"},
		{[]string{"merges.txt", "a b\n"}, "merges.txt without a vocab.json"},
		{[]string{"tokenizer.model", "version https://git-lfs.github.com/spec/v1\n"},
			"tokenizer.model: it is a pointer"},
		{[]string{"tekken.json", "{}"}, "tekken.json: it is JSON"},
		{[]string{"README.md", "x"}, "neither tokenizer.json nor tekken.json"},
	} {
		_, err := Open(Spec{Path: directory(t, c.files...)})
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
	_, err := Open(Spec{Path: many, Pattern: "cl100k", NeedEOS: true})
	if err == nil || !strings.Contains(err.Error(), "several tokens that end a text (\a, \b)") {
		t.Errorf("error %q, want one with both ids", err)
	}
}
