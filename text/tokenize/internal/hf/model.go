package hf

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/vocab"
)

// anyModel is the content of the key model of a tokenizer.json, by its kind.
type anyModel interface {
	// ids returns the ids of the tokens by their texts.
	ids() map[string]uint32
	// set sets the model of a pipeline.
	set(p *pipeline.Pipeline) error
}

// model has the keys of a BPE model.
type model struct {
	Type         string            `json:"type"`
	Dropout      *float64          `json:"dropout"`
	UnkToken     *string           `json:"unk_token"` // every byte has a token, so no text needs it
	Prefix       *string           `json:"continuing_subword_prefix"`
	Suffix       *string           `json:"end_of_word_suffix"`
	FuseUnk      bool              `json:"fuse_unk"`
	ByteFallback bool              `json:"byte_fallback"`
	IgnoreMerges bool              `json:"ignore_merges"`
	Vocab        map[string]uint32 `json:"vocab"`
	Merges       []merge           `json:"merges"`
}

// merge is the left and the right token.
type merge [2]string

// decodeBPE decodes a BPE model. Its merges are all "left right", or all ["left", "right"].
func decodeBPE(text []byte) (*model, error) {
	var m model
	lines := struct {
		*model
		Merges []string `json:"merges"`
	}{model: &m}
	lists := struct {
		*model
		Merges [][]string `json:"merges"`
	}{model: &m}
	var err error
	if inLists := regexp.MustCompile(`"merges"\s*:\s*\[\s*\[`).Match(text); inLists {
		err = decode(text, &lists)
	} else {
		err = decode(text, &lines)
	}
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	m.Merges = make([]merge, 0, len(lines.Merges)+len(lists.Merges))
	for i, line := range lines.Merges {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, fmt.Errorf("model.merges[%d]: %q is not two tokens with a space between", i, line)
		}
		m.Merges = append(m.Merges, merge{left, right})
	}
	for i, list := range lists.Merges {
		if len(list) != 2 {
			return nil, fmt.Errorf("model.merges[%d]: it has %d tokens, not 2", i, len(list))
		}
		m.Merges = append(m.Merges, merge(list))
	}
	return &m, nil
}

func (m *model) ids() map[string]uint32 { return m.Vocab }

// lacks returns an error for the parts of a BPE model that no encoder follows.
func (m *model) lacks() error {
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return &refusal{fmt.Sprintf("model.dropout: it is %g, so ids are random", *m.Dropout),
			"write null for it: then the ids are those without dropout"}
	case m.Prefix != nil && *m.Prefix != "":
		return refuse("model.continuing_subword_prefix", "it is %q", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return refuse("model.end_of_word_suffix", "it is %q", *m.Suffix)
	}
	return nil
}

// checkID refuses an id of the vocabulary that is too high.
func checkID(key string, id uint32) error {
	if id >= vocab.MaxTokens {
		return fmt.Errorf("model.vocab[%q]: the id is %d, and the highest supported one is %d", key, id,
			vocab.MaxTokens-1)
	}
	return nil
}

// texts returns the texts of the ids.
func texts(ids map[string]uint32) ([][]byte, error) {
	keys, most := slices.Sorted(maps.Keys(ids)), uint32(0)
	for _, key := range keys {
		id := ids[key]
		if err := checkID(key, id); err != nil {
			return nil, err
		}
		if int(id) > 2*len(ids)+1<<12 {
			return nil, fmt.Errorf("model.vocab[%q]: the id is %d, for %d tokens", key, id, len(ids))
		}
		most = max(most, id)
	}
	tokens := make([][]byte, most+1)
	for _, key := range keys {
		id := ids[key]
		if key == "" || tokens[id] != nil {
			return nil, fmt.Errorf("model.vocab[%q]: the token is empty, or id %d is there twice", key, id)
		}
		tokens[id] = []byte(key)
	}
	return tokens, nil
}

// byteIDs returns the ids of the tokens that stand for bytes. An ASCII character that is a token needs none.
func byteIDs(ids map[string]uint32) (*[256]uint32, error) {
	var list [256]uint32
	for b := range list {
		var ok bool
		name := fmt.Sprintf("<0x%02X>", b)
		if list[b], ok = ids[name]; !ok && b < utf8.RuneSelf {
			list[b], ok = ids[string(rune(b))]
		}
		if !ok {
			return nil, refuse("model.byte_fallback", "it is true, and the vocabulary lacks the token %s", name)
		}
	}
	return &list, nil
}
