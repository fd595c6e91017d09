package hf

import (
	"encoding/json"
	"strings"
	"testing"
)

// levelPart lacks the value of use_regex and the end.
const levelPart = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": `

// TestPreTokenizersOfPublishedFilesAreRefusedByPlace has a pre-tokenizer that is not followed. An encoder with the
// nearest known pattern would give other ids for it.
func TestPreTokenizersOfPublishedFilesAreRefusedByPlace(t *testing.T) {
	const qwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
		`|\s*[\r\n]+|\s+(?!\S)|\s+`
	split := func(regex string) string {
		text, err := json.Marshal(regex)
		if err != nil {
			t.Fatal(err)
		}
		return `{"type": "Split", "pattern": {"Regex": ` + string(text) + `}, "behavior": "Isolated", "invert": false}`
	}
	sequence := func(parts ...string) string {
		return `{"type": "Sequence", "pretokenizers": [` + strings.Join(parts, ",") + `]}`
	}
	bound := sequence(split(strings.Replace(qwen, `|\p{N}|`, `|\p{N}{1,3}+|`, 1)), levelPart+`false}`)
	file := `{"pre_tokenizer": ` + bound + `, "model": {"type": "BPE", "vocab": {}, "merges": []}}`
	if _, err := parse([]byte(file), &config{}); err == nil || !strings.HasPrefix(err.Error(), "pre_tokenizer") {
		t.Errorf("error %v, want one that begins with the place pre_tokenizer", err)
	}
	for _, pre := range []string{
		sequence(split(qwen), levelPart+`false}`), sequence(split(qwen), levelPart+`true}`),
		sequence(split(`\p{N}{1,3}`), split(`[一-龥]+`), levelPart+`true}`),
		strings.Replace(levelPart, "false", "true", 1) + `true}`, levelPart + `false}`,
	} {
		file := `{"pre_tokenizer": ` + pre + `, "model": {"type": "BPE", "vocab": {}, "merges": []}}`
		if _, err := parse([]byte(file), &config{}); err != nil && strings.Contains(err.Error(), "pre_tokenizer") {
			t.Errorf("%s: error %v about a pre-tokenizer that is followed", pre, err)
		}
	}
}

// TestDamagedPartsAreNamed has keys that tokenizers writes, with values that it does not.
func TestDamagedPartsAreNamed(t *testing.T) {
	for _, c := range []struct{ key, part, want string }{
		{"normalizer", `{"type": "Precompiled", "precompiled_charsmap": "AAAA"}`, "normalizer.precompiled_charsmap"},
		{"normalizer", `{"type": "BertNormalizer", "clean_text": true}`, "handle_chinese_chars"},
		{"pre_tokenizer", `{"type": "CharDelimiterSplit", "delimiter": "ab"}`, "pre_tokenizer.delimiter"},
		{"pre_tokenizer", `{"type": "CharDelimiterSplit"}`, "pre_tokenizer.delimiter"},
		{"pre_tokenizer", `{"type": "FixedLength", "length": 0}`, "pre_tokenizer.length"},
		{"pre_tokenizer", `{"type": "Split", "behavior": "Isolated"}`, "pre_tokenizer.pattern"},
		{"pre_tokenizer", `{"type": "Split", "behavior": "Removed", "invert": true, "pattern": {"String": ""}}`,
			"removes all"},
		{"pre_tokenizer", `{"type": "Punctuation", "behavior": "Often"}`, "pre_tokenizer.behavior"},
	} {
		file := `{"` + c.key + `": ` + c.part + `, "model": {"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}}}`
		if _, err := parse([]byte(file), &config{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %s", c.part, err, c.want)
		}
	}
	for _, model := range []string{
		`{"type": "WordLevel", "unk_token": "b", "vocab": {"a": 0}}`,
		`{"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "b": 0}}`,
	} {
		if _, err := parse([]byte(`{"model": `+model+`}`), &config{}); err == nil {
			t.Errorf("%s is read", model)
		}
	}
}

// TestMarksOfPostProcessors: bos and eos are those of a template, or of Bert's and Roberta's processors.
func TestMarksOfPostProcessors(t *testing.T) {
	for post, want := range map[string]string{
		`{"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": true, ` +
			`"add_prefix_space": false}`: "<s> </s>",
		`{"type": "BertProcessing", "sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}`: "[CLS] [SEP]",
		`{"type": "BertProcessing", "sep": ["[SEP]"], "cls": ["[CLS]", 101]}`:      "an error",
	} {
		var p part
		var got Tokenizer
		err := decode([]byte(post), &p)
		if err == nil {
			err = got.postProcessor("post_processor", &p)
		}
		if marks := got.BOS + " " + got.EOS; err == nil && marks != want || err != nil && want != "an error" {
			t.Errorf("%s: got %s, %v, want %s", post, marks, err, want)
		}
	}
}
