package tokenize

import (
	"encoding/json"
	"errors"
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
		"unigram", "falcon", "runs", "albert", "t5", "words", "marks", "bert", "cased", "prefix", "prefixes", "pieces",
		"whole", "ones", "replace", "firsts"} {
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
	for _, c := range []struct{ old, new, want, cure string }{
		{`{"type":"NFC"}`, `{"type":"Rhyme"}`, `normalizer: the normalizer is "Rhyme"`, "`tokens:`"},
		{`"dropout":null`, `"dropout":0.1`, `model.dropout: it is 0.1`, "write null for it"},
		{`"type":"BPE"`, `"type":"Hash"`, `model.type: it is "Hash"`, "`tokens:`"},
		{`"Isolated"`, `"Sometimes"`, `pre_tokenizer.pretokenizers[0].behavior: it is "Sometimes"`, "`tokens:`"},
		{`(?i:`, `(?<=x)(?:`, `pre_tokenizer.pretokenizers[0].pattern.Regex`, "`tokens:`"},
		{`"fuse_unk"`, `"unheard_of"`, `unheard_of`, "`tokens:`"},
		{`["a","a"]`, `["a","zz"]`, "model.merges[", "restore the file"},
		{`"model":{`, `"model":[{`, "parse JSON", "restore the file"},
	} {
		_, err := Open(Spec{Path: writeModel(t, "{}", c.old, c.new)})
		var own *Error
		if !errors.As(err, &own) || !strings.Contains(own.Reason, c.want) || !strings.Contains(own.Cure, c.cure) {
			t.Errorf("with %s: error %v, want %s; %s", c.new, err, c.want, c.cure)
		}
	}
}

// TestPartsThatMayMoveTheBeginningAreRefused: the library prepends to a part by its place in the text as it is.
func TestPartsThatMayMoveTheBeginningAreRefused(t *testing.T) {
	const first = `{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true}`
	const behind = `{"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},` + first + `]}`
	text := content(t, "testdata/hf/t5/tokenizer.json")
	start, end := strings.Index(text, `"normalizer":`), strings.Index(text, `"post_processor":`)
	for _, c := range []struct{ normalizer, pre, want string }{
		{`{"type":"Strip","strip_left":true,"strip_right":true}`, first, "remove the beginning"},
		{`{"type":"Nmt"}`, first, "remove the beginning"},
		{`{"type":"StripAccents"}`, first, "remove the beginning"},
		{`{"type":"Replace","pattern":{"String":"ab"},"content":"x"}`, first, "remove the beginning"},
		{`{"type":"Replace","pattern":{"String":"a"},"content":""}`, first, "remove the beginning"},
		{`{"type":"Replace","pattern":{"Regex":"a+"},"content":"x"}`, first, "remove the beginning"},
		{`{"type":"NFKC"}`, behind, "several characters"},
		{`{"type":"NFKC"}`, first, "an added token matches in the normal form"},
		{`{"type":"Replace","pattern":{"Regex":"(?<=a)b"},"content":"x"}`, first, "normalizer.pattern.Regex"},
		{`{"type":"Replace","pattern":{"Regex":"a*"},"content":"x"}`, first, "match the empty text"},
		{`{"type":"Replace","pattern":{"Regex":" {2,}"},"content":"▁"}`, behind, ""},
		{`{"type":"Replace","pattern":{"String":"a"},"content":"b"}`, behind, ""},
		{`{"type":"Strip","strip_left":false,"strip_right":true}`, behind, ""},
	} {
		file := text[:start] + `"normalizer":` + c.normalizer + `,"pre_tokenizer":` + c.pre + `,` + text[end:]
		_, err := Open(Spec{Path: directory(t, "tokenizer.json", file)})
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.normalizer, err, c.want)
		}
	}
}

// added returns an entry of added_tokens_decoder.
func added(content, more string) string {
	return `{"content": "` + content + `", "lstrip": false, "rstrip": false, "single_word": false, ` +
		`"normalized": false` + more + `}`
}

// TestAddedTokensOfConfigCountAsInTransformers has the ids of transformers 4.57.6 and 5.23.0.
func TestAddedTokensOfConfigCountAsInTransformers(t *testing.T) {
	const text = "a   <tool> b <new>"
	for config, want := range map[string][]uint32{
		"{}": {67, 405, 450, 223, 68, 223, 30, 80, 71, 89, 32},
		`{"added_tokens_decoder": {"450": ` + added("<tool>", `, "lstrip": true`) + `}}`: {
			67, 450, 223, 68, 223, 30, 80, 71, 89, 32},
		`{"added_tokens_decoder": {"454": ` + added("<new>", "") + `}}`: {67, 405, 450, 223, 68, 223, 454},
	} {
		e, err := Open(Spec{Path: writeModel(t, config)})
		if err != nil {
			t.Fatal(err)
		}
		if got := e.NewEncoder().Append(nil, []byte(text)); !slices.Equal(got, want) {
			t.Errorf("%s: got %d, want %d", config, got, want)
		}
	}
}

func TestAddedTokensOfConfigMustAgree(t *testing.T) {
	for _, id := range []string{"999", "450"} {
		config := `{"added_tokens_decoder": {"` + id + `": ` + added("<new>", `, "special": true`) + `}}`
		_, err := Open(Spec{Path: writeModel(t, config)})
		if err == nil || !strings.Contains(err.Error(), "added_tokens_decoder."+id) {
			t.Errorf("%s: error %v, want the name of the token", id, err)
		}
	}
	config := `{"added_tokens_decoder": {"454": ` + added("<tool>", "") + `}}`
	if _, err := Open(Spec{Path: writeModel(t, config)}); err == nil ||
		!strings.Contains(err.Error(), "added_tokens_decoder.454") {
		t.Errorf("another id: error %v, want the name of the token", err)
	}
}

// TestGenerationConfigGivesEOSWhereNoOtherFileDoes: tokenizer_config.json counts more, and of several ends none is
// chosen.
func TestGenerationConfigGivesEOSWhereNoOtherFileDoes(t *testing.T) {
	for _, c := range []struct{ config, generation, want string }{
		{`{}`, `{"bos_token_id": 0, "eos_token_id": 1}`, "<s> </s>"},
		{`{}`, `{"bos_token_id": null, "eos_token_id": [1]}`, " </s>"},
		{`{"eos_token": "<s>"}`, `{"eos_token_id": [1, 2]}`, " <s>"},
		{`{}`, `{"eos_token_id": [1, 2]}`, "several tokens that end a text (</s>, <tool>x)"},
		{`{}`, `{"eos_token_id": "x"}`, "generation_config.json: "},
		{`{}`, `{}`, "has no eos"},
	} {
		folder := writeModel(t, c.config)
		path := filepath.Join(folder, "generation_config.json")
		if err := os.WriteFile(path, []byte(c.generation), 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := Open(Spec{Path: folder, NeedEOS: true})
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			bos, hasBOS := e.BOS()
			eos, _ := e.EOS()
			if hasBOS {
				got = e.Specials()[bos]
			}
			got += " " + e.Specials()[eos]
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s with %s: got %q, want %q", c.generation, c.config, got, c.want)
		}
	}
}

// TestFilesMustAgreeOnThePrefixSpace: transformers 4.57.6 follows tokenizer_config.json. Without the key it is false.
// 5.23.0 follows it for some classes, and tokenizer.json for others.
func TestFilesMustAgreeOnThePrefixSpace(t *testing.T) {
	plain := content(t, "testdata/hf/plain/tokenizer.json")
	prefix := content(t, "testdata/hf/prefix/tokenizer.json")
	for _, c := range []struct {
		file, config string
		agree        bool
	}{
		{plain, `{}`, true}, {plain, `{"add_prefix_space": false}`, true}, {plain, `{"add_prefix_space": true}`, false},
		{prefix, `{}`, false}, {prefix, `{"add_prefix_space": false}`, false},
		{prefix, `{"add_prefix_space": true}`, true},
	} {
		_, err := Open(Spec{Path: directory(t, "tokenizer.json", c.file, "tokenizer_config.json", c.config)})
		if c.agree != (err == nil) || err != nil && !strings.Contains(err.Error(), "add_prefix_space is") {
			t.Errorf("%s: error %v", c.config, err)
		}
	}
	if _, err := Open(Spec{Path: directory(t, "tokenizer.json", prefix)}); err != nil {
		t.Errorf("without tokenizer_config.json: %v", err)
	}
}

// TestAddedTokensHaveTheIDsOfTheLibrary: tokenizers 0.23.3 numbers added tokens by itself and ignores their ids in the
// file. The texts of these files would have other ids there.
func TestAddedTokensHaveTheIDsOfTheLibrary(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{`"id":450,"content":"<tool>"`, `"id":460,"content":"<tool>"`, `"<tool>" has the id 460`},
		{`"id":1,"content":"</s>"`, `"id":480,"content":"</s>"`, `"</s>" has the id 480`},
		{`"id":2,"content":"<tool>x"`, `"id":480,"content":"<tool>x"`, ""}, // no document has it
	} {
		_, err := Open(Spec{Path: writeModel(t, `{"eos_token": "</s>"}`, c.old, c.new)})
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.new, err, c.want)
		}
	}
}

// TestSpecialsReplaceThoseOfTokenizerJSON: added tokens that are not special stay.
func TestSpecialsReplaceThoseOfTokenizerJSON(t *testing.T) {
	for _, name := range []string{"added", "llama"} {
		path := filepath.Join("testdata/hf", name, "tokenizer.json")
		old, err := Open(Spec{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		specials, ordinary := map[string]uint32{}, map[string]uint32{}
		for id, text := range old.Specials() {
			if text == "<s>" || text == "</s>" {
				specials[text] = id
			} else {
				ordinary[text] = id
			}
		}
		end := specials["</s>"]
		delete(specials, "</s>")
		specials["<end>"] = end
		e, err := Open(Spec{Path: path, Specials: specials, EOS: "<end>", NeedEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := e.EOS(); id != end {
			t.Errorf("%s: eos %d, want %d", name, id, end)
		}
		if text, err := e.Decode(nil, []uint32{end}); err != nil || string(text) != "<end>" {
			t.Errorf("%s: eos decodes to %q, %v", name, text, err)
		}
		if _, ok := e.Specials()[ordinary["<tool>"]]; !ok {
			t.Errorf("%s: the added token <tool> is lost", name)
		}
		text := []byte("The <tool> quick <end> </s>")
		if got, want := e.NewEncoder().Append(nil, text), old.NewEncoder().Append(nil, text); !slices.Equal(got, want) {
			t.Errorf("%s: the text has the ids %d, before %d", name, got, want)
		}
		if e.Fingerprint() == old.Fingerprint() {
			t.Errorf("%s: other special tokens have the same fingerprint", name)
		}
		_, err = Open(Spec{Path: path, Specials: map[string]uint32{"<end>": ordinary["<tool>"]}})
		var wrong *Error
		if !errors.As(err, &wrong) || wrong.Key != "specials" || !strings.Contains(wrong.Reason, "<tool>") {
			t.Errorf("%s: error %v for an id that is taken, want one that names both tokens", name, err)
		}
	}
}

// TestVocabularyAndMergesGiveIDsOfTokenizerJSON has the parts of transformers 4.57.6 and 5.23.0 for the classes.
func TestVocabularyAndMergesGiveIDsOfTokenizerJSON(t *testing.T) {
	content, err := os.ReadFile("testdata/hf/plain/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Model struct {
			Vocab  json.RawMessage
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	merges := "#version: 0.2\n"
	for _, m := range file.Model.Merges {
		merges += m[0] + " " + m[1] + "\n"
	}
	write := func(t *testing.T, config string, more ...string) string {
		folder := t.TempDir()
		files := []string{"vocab.json", string(file.Model.Vocab), "merges.txt", merges, "tokenizer_config.json", config}
		for files = append(files, more...); len(files) > 0; files = files[2:] {
			if err := os.WriteFile(filepath.Join(folder, files[0]), []byte(files[1]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return folder
	}
	five := strings.TrimSuffix(string(file.Model.Vocab), "}") +
		`, "<s>": 450, "</s>": 451, "<unk>": 452, "<pad>": 453, "<mask>": 454}`
	ends := map[string]uint32{
		"GPT2Tokenizer": 0, "CodeGenTokenizerFast": 0, "Qwen2Tokenizer": 0, "RobertaTokenizer": 451,
	}
	for class, end := range ends {
		more := []string{}
		if end > 0 {
			more = []string{"vocab.json", five}
		}
		e, err := Open(Spec{Path: write(t, `{"tokenizer_class": "`+class+`"}`, more...), NeedEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		if eos, _ := e.EOS(); eos != end {
			t.Errorf("%s: eos %d, want %d", class, eos, end)
		}
		got := e.NewEncoder().Append(nil, []byte("Hi <new> <|endoftext|>1"))
		if want := []uint32{40, 73, 221, 28, 78, 69, 87, 30, 221, 28}; !slices.Equal(got[:10], want) {
			t.Errorf("%s: got %d, want %d and more", class, got, want)
		}
	}
	folder := write(t, `{"tokenizer_class": "GPT2Tokenizer"}`)
	cases, err := os.ReadFile("testdata/hf/plain/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Text string
		IDs  []uint32
	}
	if err := json.Unmarshal(cases, &list); err != nil {
		t.Fatal(err)
	}
	e, err := Open(Spec{Path: folder})
	if err != nil {
		t.Fatal(err)
	}
	enc := e.NewEncoder()
	for _, c := range list {
		if got := enc.Append(nil, []byte(c.Text)); !slices.Equal(got, c.IDs) {
			t.Errorf("%q: got %d, want %d", c.Text, got, c.IDs)
		}
	}
	prefixed, err := Open(Spec{Path: write(t, `{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true}`)})
	if err != nil {
		t.Fatal(err)
	}
	want := []uint32{221, 40, 73, 221, 28}
	if got := prefixed.NewEncoder().Append(nil, []byte("Hi <")); !slices.Equal(got, want) {
		t.Errorf("with a prefix space: got %d, want %d", got, want)
	}
	if prefixed.Fingerprint() == e.Fingerprint() || !strings.Contains(prefixed.Pattern(), "a space before") {
		t.Errorf("pattern %s: the prefix space changes no identity", prefixed.Pattern())
	}
	for want, folder := range map[string]string{
		`tokenizer_class "CLIPTokenizer"`: write(t, `{"tokenizer_class": "CLIPTokenizer"}`),
		`tokenizer_class ""`:              write(t, `{}`),
		"add_prefix_space":                write(t, `{"tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": true}`),
		"added_tokens.json":               write(t, `{"tokenizer_class": "GPT2Tokenizer"}`, "added_tokens.json", "{}"),
		"merges.txt:2":                    write(t, `{"tokenizer_class": "GPT2Tokenizer"}`, "merges.txt", "a b\nc\n"),
		"neither tokenizer.json":          t.TempDir(),
	} {
		if _, err := Open(Spec{Path: folder}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
