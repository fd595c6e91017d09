package hf

import (
	"encoding/json"
	"strings"
	"testing"
)

// levelPart lacks the value of use_regex and the end.
const levelPart = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": `

// TestPreTokenizersOfPublishedFilesAreRefusedByPlace has the pre-tokenizers of published files that are not followed.
// An encoder with the nearest known pattern would give other ids for them.
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
	for name, pre := range map[string]string{
		"a late class":   sequence(levelPart+`true}`, split(`\p{N}`)),
		"a second level": sequence(levelPart+`true}`, levelPart+`true}`),
		"a fixed string": sequence(strings.Replace(split(" "), `"Regex"`, `"String"`, 1), levelPart+`false}`),
		"a bound":        sequence(split(strings.Replace(qwen, `|\p{N}|`, `|\p{N}{1,3}+|`, 1)), levelPart+`false}`),
		"a gap": sequence(
			strings.Replace(split(`\p{N}`), `"Isolated", "invert": false`, `"Removed", "invert": true`, 1),
			levelPart+`false}`,
		),
	} {
		file := `{"pre_tokenizer": ` + pre + `, "model": {"type": "BPE", "vocab": {}, "merges": []}}`
		if _, err := parse([]byte(file), &config{}); err == nil || !strings.HasPrefix(err.Error(), "pre_tokenizer") {
			t.Errorf("%s: error %v, want one that begins with the place pre_tokenizer", name, err)
		}
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

// TestPartsOfRefusedKindsAreNamed has the keys that tokenizers writes for the kinds.
func TestPartsOfRefusedKindsAreNamed(t *testing.T) {
	for _, c := range []struct{ key, kind, rest string }{
		{"normalizer", "BertNormalizer",
			`"clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true`},
		{"normalizer", "Strip", `"strip_left": true, "strip_right": true`},
		{"normalizer", "Precompiled", `"precompiled_charsmap": "AAAA"`},
		{"pre_tokenizer", "CharDelimiterSplit", `"delimiter": "-"`},
		{"pre_tokenizer", "FixedLength", `"length": 5`},
	} {
		parts := map[string]string{"normalizer": "null", "pre_tokenizer": levelPart + `true}`}
		parts[c.key] = `{"type": "` + c.kind + `", ` + c.rest + `}`
		file := `{"model": {"type": "BPE", "vocab": {}, "merges": []}`
		for _, key := range []string{"normalizer", "pre_tokenizer"} {
			file += `, "` + key + `": ` + parts[key]
		}
		_, err := parse([]byte(file+`}`), &config{})
		if err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), c.kind) {
			t.Errorf("%s %s: error %v, want one with both names", c.key, c.kind, err)
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
