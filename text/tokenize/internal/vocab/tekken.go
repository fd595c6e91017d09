package vocab

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Tekken is the content of a Tekken file: tokens, the regular expression that divides text, and special tokens, whose
// ids come first.
type Tekken struct {
	Vocabulary *Vocabulary
	Pattern    string
	Specials   map[string]uint32
}

// tekkenFile has the keys of the file that decide ids.
type tekkenFile struct {
	Config struct {
		Pattern  string `json:"pattern"`
		Size     int    `json:"default_vocab_size"`
		Specials int    `json:"default_num_special_tokens"`
		Version  string `json:"version"`
	} `json:"config"`
	Vocab []struct {
		Rank  int    `json:"rank"`
		Bytes []byte `json:"token_bytes"`
	} `json:"vocab"`
	Specials []struct {
		Rank int    `json:"rank"`
		Text string `json:"token_str"`
	} `json:"special_tokens"`
}

// ParseTekken reads a Tekken file of Mistral. The file may have more tokens than are used: the first ones count. See
// Tekkenizer in mistral-common 1.13.
func ParseTekken(content []byte) (*Tekken, error) {
	var f tekkenFile
	if err := json.Unmarshal(content, &f); err != nil {
		return nil, fmt.Errorf("parse JSON: %w", err)
	}
	c := f.Config
	used := c.Size - c.Specials
	switch {
	case c.Pattern == "":
		return nil, errors.New("config.pattern: there is none")
	case c.Specials < 0 || c.Size > MaxTokens || used < 1 || used > len(f.Vocab):
		return nil, fmt.Errorf("config: %d ids, of which %d are special, do not fit the %d tokens of vocab",
			c.Size, c.Specials, len(f.Vocab))
	}
	tokens := make([][]byte, c.Size)
	for i, token := range f.Vocab[:used] {
		if token.Rank != i || len(token.Bytes) == 0 {
			return nil, fmt.Errorf("vocab[%d]: its rank is %d, and it has %d bytes", i, token.Rank, len(token.Bytes))
		}
		tokens[c.Specials+i] = token.Bytes
	}
	v, err := fromTokens(tokens)
	if err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	specials, err := f.specials()
	return &Tekken{v, c.Pattern, specials}, err
}

// specials returns the special tokens with their ids. Numbered ones fill the ids that have none.
func (f *tekkenFile) specials() (map[string]uint32, error) {
	texts := make([]string, f.Config.Specials)
	for i, token := range f.Specials {
		if token.Rank < 0 || token.Rank >= len(texts) || texts[token.Rank] != "" || token.Text == "" {
			return nil, fmt.Errorf("special_tokens[%d]: %q has the rank %d, for %d special tokens",
				i, token.Text, token.Rank, len(texts))
		}
		texts[token.Rank] = token.Text
	}
	if f.Specials == nil {
		old := []string{"v1", "v2", "v3", "v7"}
		if !slices.Contains(old, f.Config.Version) {
			return nil, fmt.Errorf("special_tokens: there are none in a file of version %q", f.Config.Version)
		}
		copy(texts, firstSpecials())
	}
	ids := make(map[string]uint32, len(texts))
	for id, text := range texts {
		if text == "" {
			text = "<SPECIAL_" + strconv.Itoa(id) + ">"
		}
		if _, twice := ids[text]; twice {
			return nil, fmt.Errorf("special_tokens: %q is there twice", text)
		}
		ids[text] = uint32(id)
	}
	return ids, nil
}

// firstSpecials returns the special tokens of files that do not list them.
func firstSpecials() []string {
	return []string{"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
		"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]",
		"[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}
}
