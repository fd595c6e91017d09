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
	BOS, EOS   string // of the post-processor's template; empty: it has none

	// Pipeline, unless nil, encodes in place of Vocabulary, Pattern and NFC. Parts are its description.
	Pipeline *pipeline.Pipeline
	Parts    []byte
}

// Added is an added token.
type Added struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"` // it matches in the text in normal form
	Special    bool   `json:"special"`
}

// Sides returns the conditions of a token that is not special on the text beside it, as bits.
func (a *Added) Sides() (bits byte) {
	for i, is := range []bool{a.SingleWord, a.LStrip, a.RStrip} {
		if is && !a.Special {
			bits |= 1 << i
		}
	}
	return bits
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

// Parse returns the tokenizer of a tokenizer.json. An error names the place in the file. Memory is proportional to the
// length of content.
func Parse(content []byte) (*Tokenizer, error) {
	var f file
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	t := &Tokenizer{Added: f.Added}
	if err := t.postProcessor("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	if !f.isByteLevel() {
		return t, t.pipeline(&f)
	}
	if err := t.normalizer("normalizer", f.Normalizer); err != nil {
		return nil, err
	}
	if err := t.preTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	return t, t.model(f.Model)
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
