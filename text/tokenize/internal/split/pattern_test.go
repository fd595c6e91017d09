package split

import "testing"

// The texts are those of their publishers: pip's tiktoken, llama-models and dashscope.
func TestParse(t *testing.T) {
	for text, want := range map[string]Pattern{
		"gpt2": R50k, "p50k": R50k, "r50k": R50k, "cl100k": Cl100k, "o200k": O200k, "llama3": Llama3, "qwen2": Qwen2,
		`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`: R50k,
		`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+` +
			`| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s`: Cl100k,
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
			`(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
			`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`: O200k,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` +
			`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: Llama3,
		`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` +
			`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: Qwen2,
	} {
		if got, ok := Parse(text); !ok || got != want {
			t.Errorf("%s: pattern %v (%v), want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "gpt4", `\p{L}+`, "CL100K"} {
		if got, ok := Parse(text); ok {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
	for p, texts := range expressions() {
		if len(texts) == 0 || names()[p][0] != p.String() {
			t.Errorf("%v: %d expressions, names %v", p, len(texts), names()[p])
		}
	}
}
