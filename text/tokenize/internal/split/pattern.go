package split

import (
	"slices"
	"strings"
)

// Pattern names a regular expression.
type Pattern uint8

// The patterns of pip's tiktoken 0.14.0, of Meta's llama-models and of Alibaba's Qwen. expressions has their texts.
const (
	Cl100k     Pattern = iota // of cl100k_base
	R50k                      // of r50k_base, p50k_base and gpt2
	O200k                     // of o200k_base and Llama 4
	Llama3                    // of Llama 3; cl100k_base had it before tiktoken 0.8
	Qwen2                     // of Qwen 1 to 3
	R50kDigits                // of Command R and StarCoder: Digits and then R50k; no single expression has it
)

// String returns the pattern's name, which is part of fingerprints.
func (p Pattern) String() string {
	return [...]string{Cl100k: "cl100k", R50k: "r50k", O200k: "o200k", Llama3: "llama3", Qwen2: "qwen2",
		R50kDigits: "digits, r50k"}[p]
}

// names returns the names of every pattern, each with its own name first.
func names() map[Pattern][]string {
	return map[Pattern][]string{
		R50k:   {"r50k", "r50k_base", "gpt2", "p50k", "p50k_base"},
		Cl100k: {"cl100k", "cl100k_base"},
		O200k:  {"o200k", "o200k_base", "llama4"},
		Llama3: {"llama3"},
		Qwen2:  {"qwen2", "qwen"},
	}
}

// Alternatives of the expressions.
const (
	folded = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	before = `[^\r\n\p{L}\p{N}]?`
	uppers = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lowers = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	lines  = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// expressions returns the texts of every pattern as their publishers write them. All texts of one pattern find the same
// pieces in every text.
func expressions() map[Pattern][]string {
	return map[Pattern][]string{
		R50k: {
			`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`,
			`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
			`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
			`'s|'t|'re|'ve|'m|'ll|'d| ?[\p{L}]+| ?[\p{N}]+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		},
		Cl100k: {
			`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+` +
				`|\s++$|\s*[\r\n]|\s+(?!\S)|\s`,
		},
		O200k: {
			before + uppers + `*` + lowers + `+` + folded + `?|` + before + uppers + `+` + lowers + `*` + folded + `?` +
				`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		},
		Llama3: {
			folded + `|` + before + `\p{L}+|\p{N}{1,3}` + lines,
			`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*` +
				`|\s*[\r\n]|\s+(?!\S)|\s+`,
		},
		Qwen2: {
			folded + `|` + before + `\p{L}+|\p{N}` + lines,
		},
	}
}

// Parse returns the pattern with this name or with this regular expression.
func Parse(text string) (Pattern, bool) {
	for _, all := range []map[Pattern][]string{names(), expressions()} {
		for p, texts := range all {
			if slices.Contains(texts, strings.TrimSpace(text)) {
				return p, true
			}
		}
	}
	return 0, false
}

// Names returns the name of each pattern, for people.
func Names() []string {
	var list []string
	for p := range names() {
		list = append(list, p.String())
	}
	slices.Sort(list)
	return list
}
