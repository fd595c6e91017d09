package hf

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// qwen2 is the expression of Qwen2Tokenizer in transformers.
const qwen2 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+` +
	`|\s+(?!\S)|\s+`

// readMerges returns the tokenizer of vocab.json and merges.txt. The class in tokenizer_config.json decides its other
// parts, as in transformers 4.57 and 5.23.
func readMerges(dir string, c *config) (*Tokenizer, error) {
	m := &model{}
	if err := readConfig(filepath.Join(dir, "vocab.json"), &m.Vocab); err != nil {
		return nil, err
	}
	text, err := readText(filepath.Join(dir, mergesText))
	if err != nil {
		return nil, err
	}
	if len(m.Vocab) == 0 {
		return nil, &Error{"the directory has merges.txt without a vocab.json", cureSave}
	}
	if _, err := os.Stat(filepath.Join(dir, "added_tokens.json")); err == nil {
		return nil, &Error{"added_tokens.json without a tokenizer.json cannot be followed", cureSave}
	}
	for i, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		if line == "" || i == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, &Error{fmt.Sprintf("merges.txt:%d: %q is not two tokens with a space between", i+1, line),
				cureRestore}
		}
		m.Merges = append(m.Merges, merge{left, right})
	}
	f, t, err := ofClass(c)
	if err != nil {
		return nil, err
	}
	t, err = f.build(m, t, c)
	return t, inFile("vocab.json with "+mergesText, err)
}

// ofClass returns the parts of a class of transformers, and its bos and eos.
func ofClass(c *config) (*file, *Tokenizer, error) {
	level := &part{Type: "ByteLevel", AddPrefixSpace: c.prefix}
	f, t := &file{PreTokenizer: level}, &Tokenizer{BOS: "<|endoftext|>", EOS: "<|endoftext|>"}
	switch strings.TrimSuffix(c.class, "Fast") {
	case "GPT2Tokenizer", "CodeGenTokenizer":
	case "RobertaTokenizer":
		t.BOS, t.EOS = "<s>", "</s>"
	case "Qwen2Tokenizer":
		if level.prefixes() {
			return nil, nil, &Error{"tokenizer_config.json: add_prefix_space is true, and it cannot be followed",
				cureSave}
		}
		t.BOS = ""
		split, whole := &part{Type: "Split", Behavior: "Isolated"}, false
		expression := qwen2
		split.Pattern.Regex, level.UseRegex = &expression, &whole
		f.Normalizer = &part{Type: "NFC"}
		f.PreTokenizer = &part{Type: "Sequence", PreTokenizers: []*part{split, level}}
	default:
		return nil, nil, &Error{fmt.Sprintf("vocab.json and merges.txt do not tell how text is divided, and "+
			"tokenizer_config.json has the tokenizer_class %q", c.class), cureSave}
	}
	return f, t, nil
}

// readText returns the content of a text file.
func readText(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxJSON))
	return string(content), err
}
