package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// maxJSON bounds the size of a tokenizer.json. The largest public ones have some 35 MB.
	maxJSON = 256 << 20
	// sniffed is the number of first bytes that decide whether a file is a tokenizer.json.
	sniffed = 4096
)

// Error is a reason why the files of a tokenizer are not followed.
type Error struct{ Reason, Cure string }

func (e *Error) Error() string { return e.Reason + "; " + e.Cure }

const (
	cureRestore = "restore the file"
	cureSave    = "save the tokenizer again with transformers"
)

// ReadFile returns the tokenizer of a tokenizer.json by itself, or nil if the first bytes are not those of one.
func ReadFile(path string) (*Tokenizer, error) { return read(path, &config{}) }

// ReadDirectory returns the tokenizer of a model's directory: of its tokenizer.json, else of vocab.json and merges.txt.
// Its tokenizer_config.json, special_tokens_map.json and generation_config.json give bos, eos and further added tokens.
func ReadDirectory(dir string) (*Tokenizer, error) {
	c, err := readConfigs(dir)
	if err != nil {
		return nil, err
	}
	t, err := read(filepath.Join(dir, tokenizerJSON), c)
	if errors.Is(err, fs.ErrNotExist) {
		return readMerges(dir, c)
	}
	if t == nil && err == nil {
		return nil, &Error{"tokenizer.json does not have the keys of a tokenizer", cureRestore}
	}
	return t, err
}

func read(path string, c *config) (*Tokenizer, error) {
	content, err := ReadJSON(path, isTokenizer)
	if content == nil || err != nil {
		return nil, err
	}
	t, err := parse(content, c)
	return t, inFile(filepath.Base(path), err)
}

// ReadJSON returns the content of a JSON file of up to 256 MiB, or nil if its first bytes are not of the kind.
func ReadJSON(path string, isKind func(head []byte) bool) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head := make([]byte, sniffed)
	n, err := io.ReadFull(file, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF || !isKind(head[:n]) {
		return nil, nil
	}
	content, err := io.ReadAll(io.MultiReader(bytes.NewReader(head[:n]), io.LimitReader(file, maxJSON)))
	if err != nil {
		return nil, err
	}
	if len(content) > maxJSON {
		return nil, &Error{fmt.Sprintf("it has more than %d MiB", maxJSON>>20), cureRestore}
	}
	return content, nil
}

// isTokenizer reports whether a file begins as a tokenizer.json does.
func isTokenizer(head []byte) bool {
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	for _, key := range []string{`"truncation"`, `"added_tokens"`, `"normalizer"`} {
		if bytes.Contains(text, []byte(key)) {
			return true
		}
	}
	return false
}

// config has the settings of the files beside a tokenizer.json.
type config struct {
	isThere      bool   // tokenizer_config.json
	class        string // of tokenizer_config.json
	prefix       *bool  // a text begins with a space; nil: as the tokenizer's file says
	lower        bool   // a text is in lower case
	sampling     map[string]any
	bos, eos     string // empty: they name none
	added        map[uint32]Added
	bosID, eosID idList // of generation_config.json
}

// readConfigs reads the files that are there. Where two name a token, tokenizer_config.json counts, as in transformers.
func readConfigs(dir string) (*config, error) {
	c := &config{}
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		var content struct {
			BOS   configToken      `json:"bos_token"`
			EOS   configToken      `json:"eos_token"`
			Added map[uint32]Added `json:"added_tokens_decoder"`

			Class    string         `json:"tokenizer_class"`
			Prefix   *bool          `json:"add_prefix_space"`
			Lower    bool           `json:"do_lower_case"`
			Sampling map[string]any `json:"sp_model_kwargs"`
		}
		if err := readConfig(filepath.Join(dir, name), &content); err != nil {
			return nil, err
		}
		if content.BOS != "" {
			c.bos = string(content.BOS)
		}
		if content.EOS != "" {
			c.eos = string(content.EOS)
		}
		c.class, c.prefix = content.Class, content.Prefix // the last file is tokenizer_config.json
		c.lower, c.sampling = content.Lower, content.Sampling
		if content.Added != nil {
			c.added = content.Added
		}
	}
	_, err := os.Stat(filepath.Join(dir, "tokenizer_config.json"))
	c.isThere = err == nil
	var generation struct {
		BOS idList `json:"bos_token_id"`
		EOS idList `json:"eos_token_id"`
	}
	err = readConfig(filepath.Join(dir, "generation_config.json"), &generation)
	c.bosID, c.eosID = generation.BOS, generation.EOS
	return c, err
}

// readConfig reads a small JSON file; a file that is not there says nothing.
func readConfig(path string, into any) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := json.NewDecoder(io.LimitReader(file, maxJSON)).Decode(into); err != nil {
		return &Error{filepath.Base(path) + ": " + err.Error(), cureRestore}
	}
	return nil
}

// configToken is a token of tokenizer_config.json: its text, or an object with it.
type configToken string

// UnmarshalJSON reads a token in one of its forms; null is no token.
func (c *configToken) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '{' {
		var object struct {
			Content string `json:"content"`
		}
		err := json.Unmarshal(text, &object)
		*c = configToken(object.Content)
		return err
	}
	return json.Unmarshal(text, (*string)(c))
}

// idList is one id or a list of them.
type idList []uint32

// UnmarshalJSON reads the ids in one of their forms; null is no id.
func (l *idList) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '[' || string(text) == "null" {
		return json.Unmarshal(text, (*[]uint32)(l))
	}
	*l = make(idList, 1)
	return json.Unmarshal(text, &(*l)[0])
}
