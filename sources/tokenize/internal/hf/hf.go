// Package hf reads the tokenizer.json of Hugging Face's tokenizers.
//
// It understands byte-level BPE with the pre-tokenizers of the packages split and pretokenize, and tokenizers that the
// package pipeline follows. It refuses everything else by its name and its place in the file. So ids are never
// approximated.
package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"millrace/sources/tokenize/internal/pipeline"
	"millrace/sources/tokenize/internal/pretokenize"
	"millrace/sources/tokenize/internal/split"
	"millrace/sources/tokenize/internal/vocab"
)

// Tokenizer is the content of a tokenizer.json.
type Tokenizer struct {
	Vocabulary *vocab.Vocabulary
	Pattern    split.Pattern
	Stages     pretokenize.Stages // unless nil, in place of Pattern
	NFC        bool               // text is brought into normal form C first
	Added      []Added
	BOS, EOS   string // of the files beside it, or of the post-processor; empty: they name none
	Ends       string // the tokens of which each may be EOS, if the files name several

	// Pipeline, unless nil, encodes in place of Vocabulary, Pattern and NFC. Parts are its description.
	Pipeline *pipeline.Pipeline
	Parts    []byte
}

// Token returns the text of an id of the model; it is empty if there is none.
func (t *Tokenizer) Token(id uint32) []byte {
	switch {
	case t.Pipeline == nil && int(id) < t.Vocabulary.Len():
		return t.Vocabulary.Token(id)
	case t.Pipeline != nil && int(id) < t.Pipeline.Len():
		return t.Pipeline.Tokens[id]
	}
	return nil
}

// file has the keys of a tokenizer.json. Truncation and padding change no id of a whole text, and the decoder none.
type file struct {
	Version       json.RawMessage `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	Added         []Added         `json:"added_tokens"`
	Normalizer    *part           `json:"normalizer"`
	PreTokenizer  *part           `json:"pre_tokenizer"`
	PostProcessor *part           `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// part is a normalizer, a pre-tokenizer or a post-processor with the keys of all that are understood.
type part struct {
	Type string `json:"type"`

	Normalizers   []*part `json:"normalizers"`
	PreTokenizers []*part `json:"pretokenizers"`
	Processors    []*part `json:"processors"`

	AddPrefixSpace *bool `json:"add_prefix_space"`
	UseRegex       *bool `json:"use_regex"` // nil: true

	IndividualDigits bool `json:"individual_digits"`

	Pattern  struct{ Regex, String *string } `json:"pattern"`
	Behavior string                          `json:"behavior"`
	Invert   bool                            `json:"invert"`

	Single []struct {
		SpecialToken *struct {
			ID     string `json:"id"`
			TypeID int    `json:"type_id"`
		}
		Sequence json.RawMessage
	} `json:"single"`

	Sep marker `json:"sep"`
	Cls marker `json:"cls"`

	Prepend  string `json:"prepend"`
	Content  string `json:"content"`
	Left     bool   `json:"strip_left"`
	Right    bool   `json:"strip_right"`
	Charsmap []byte `json:"precompiled_charsmap"`

	Replacement   string `json:"replacement"`
	PrependScheme string `json:"prepend_scheme"`
	Split         *bool  `json:"split"` // nil: true

	// These change no id of a document.
	StrRep        json.RawMessage `json:"str_rep"`
	TrimOffsets   json.RawMessage `json:"trim_offsets"`
	Pair          json.RawMessage `json:"pair"`
	SpecialTokens json.RawMessage `json:"special_tokens"`

	// These belong to kinds that are refused. They are known here so that the error has the kind and its place.
	Delimiter    json.RawMessage `json:"delimiter"`
	Length       json.RawMessage `json:"length"`
	CleanText    json.RawMessage `json:"clean_text"`
	ChineseChars json.RawMessage `json:"handle_chinese_chars"`
	StripAccents json.RawMessage `json:"strip_accents"`
	Lowercase    json.RawMessage `json:"lowercase"`
}

// marker is the text of a token that is written as [text, id].
type marker string

// UnmarshalJSON reads the text.
func (m *marker) UnmarshalJSON(text []byte) error {
	list := []any{(*string)(m), new(uint32)}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) != 2 {
		return fmt.Errorf("read marker: it has %d parts, not a text and an id", len(list))
	}
	return nil
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

// merge is "left right" or ["left", "right"].
type merge [2]string

// UnmarshalJSON reads a merge in one of its forms.
func (m *merge) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' {
		var list []string
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		if len(list) != 2 {
			return fmt.Errorf("read merge: it has %d tokens, not 2", len(list))
		}
		*m = merge(list)
		return nil
	}
	var line []byte
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	line = []byte(s)
	left, right, ok := bytes.Cut(line, []byte(" "))
	if !ok || bytes.IndexByte(right, ' ') >= 0 {
		return fmt.Errorf("read merge: %q is not two tokens with a space between", s)
	}
	*m = merge{string(left), string(right)}
	return nil
}

// parse returns the tokenizer of a tokenizer.json, with what the files beside it say. An error names the place in the
// file. Memory is proportional to the length of content.
func parse(content []byte, c *config) (*Tokenizer, error) {
	var f file
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	m, err := f.model()
	if err != nil {
		return nil, err
	}
	return build(&f, m, &Tokenizer{Added: f.Added}, c)
}

// build completes a tokenizer, which may name bos and eos, by its parts.
func build(f *file, m anyModel, t *Tokenizer, c *config) (*Tokenizer, error) {
	if err := t.postProcessor("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	ids := m.ids()
	if err := t.merge(c.added, ids); err != nil {
		return nil, err
	}
	t.marks(c, ids)
	bpe, ok := m.(*model)
	if !ok || !f.isByteLevel() {
		return t, t.pipeline(f, m)
	}
	if err := t.normalizer("normalizer", f.Normalizer); err != nil {
		return nil, err
	}
	if err := t.preTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	return t, t.byteBPE(bpe)
}

// anyModel is the content of the key model of a tokenizer.json, by its kind.
type anyModel interface {
	// ids returns the ids of the tokens by their texts.
	ids() map[string]uint32
	// set sets the model of a pipeline.
	set(p *pipeline.Pipeline) error
}

// model decodes the model.
func (f *file) model() (anyModel, error) {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(f.Model, &kind); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	var m anyModel
	switch {
	case kind.Type == "BPE" || kind.Type == "":
		m = &model{}
	case kind.Type == "Unigram" && !f.isByteLevel():
		m = &unigramFile{}
	default:
		return nil, refuse("model.type", "it is %q", kind.Type)
	}
	if err := decode(f.Model, m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return m, nil
}

// decode reads one JSON value and refuses keys that into lacks, because they may change ids.
func decode(content []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(content, []byte("\ufeff"))))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("parse JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("parse JSON: text follows the object at byte %d", d.InputOffset())
	}
	return nil
}

func refuse(path, what string, args ...any) error {
	return fmt.Errorf("%s: %s, which cannot be followed", path, fmt.Sprintf(what, args...))
}
