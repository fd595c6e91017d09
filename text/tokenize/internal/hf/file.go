package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

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

	Delimiter *string `json:"delimiter"`
	Length    *int    `json:"length"`

	CleanText    *bool `json:"clean_text"`
	ChineseChars *bool `json:"handle_chinese_chars"`
	StripAccents *bool `json:"strip_accents"` // nil: as Lowercase
	Lowercase    *bool `json:"lowercase"`
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

// decode reads one JSON value and refuses keys that into lacks, because they may change ids.
func decode(content []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(content, []byte("\ufeff"))))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && strings.HasPrefix(err.Error(), "json: unknown field") {
		return refuse("parse JSON", "there is an %s", strings.TrimPrefix(err.Error(), "json: "))
	} else if err != nil {
		return fmt.Errorf("parse JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("parse JSON: text follows the object at byte %d", d.InputOffset())
	}
	return nil
}

// kindOf returns the text of the key type of an object. It reads no further, because models are large.
func kindOf(object []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return "", err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		if key == "type" {
			var kind string
			err := d.Decode(&kind)
			return kind, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return "", err
		}
	}
	return "", nil
}

// refusal is the error of a part that is not followed, in a file that may be whole.
type refusal struct{ what, cure string }

func (r *refusal) Error() string { return r.what }

// cureIDs serves for each tokenizer that is not followed.
const cureIDs = "turn the texts into ids with the library beforehand, and name the field of the ids with `tokens:`"

func refuse(path, what string, args ...any) error {
	return &refusal{fmt.Sprintf("%s: %s, which cannot be followed", path, fmt.Sprintf(what, args...)), cureIDs}
}

// inFile returns the error of the content of a file: a refusal, or damage.
func inFile(name string, err error) error {
	var own *Error
	var r *refusal
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.As(err, &r):
		return &Error{name + ": " + err.Error(), r.cure}
	}
	return &Error{name + ": " + err.Error(), cureRestore}
}
