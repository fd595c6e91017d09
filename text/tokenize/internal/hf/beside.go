package hf

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/text/tokenize/internal/vocab"
)

// Names of tokenizer files in a model's directory.
const (
	tokenizerJSON  = "tokenizer.json"
	tekkenJSON     = "tekken.json"
	tokenizerModel = "tokenizer.model"
	mergesText     = "merges.txt"
	tiktokenModel  = "tiktoken.model"
)

// Find returns the name of the file in a model's directory that has its tokenizer. isOwn reports whether
// [ReadDirectory] reads it; else it is a file of another format, which [ReadBeside] completes.
func Find(dir string) (name string, isOwn bool, err error) {
	for _, name := range []string{tokenizerJSON, tekkenJSON, tokenizerModel, mergesText, tiktokenModel} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return name, name == tokenizerJSON || name == mergesText, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return name, true, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", true, err
	}
	var ranks []string
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".tiktoken" {
			ranks = append(ranks, entry.Name())
		}
	}
	switch len(ranks) {
	case 0:
		return "", true, &Error{"the directory has neither " + tokenizerJSON + " nor " + tekkenJSON + ", " +
			tokenizerModel + ", vocab.json with " + mergesText + ", " + tiktokenModel + " or a file *.tiktoken",
			"write the path of the tokenizer's file"}
	case 1:
		return ranks[0], false, nil
	}
	return "", true, &Error{"the directory has several rank files: " + strings.Join(ranks, ", "),
		"write the path of the one that the model uses"}
}

// Beside has the settings in a model's directory for a tokenizer of another format than tokenizer.json.
type Beside struct {
	file   string
	config *config
}

// ReadBeside reads the files beside a tokenizer's file.
func ReadBeside(path string) (*Beside, error) {
	dir, file := filepath.Split(path)
	c, err := readConfigs(dir)
	if err != nil {
		return nil, err
	}
	b := &Beside{file, c}
	switch {
	case c.lower:
		return nil, b.refuse("do_lower_case is true")
	case len(c.sampling) > 0:
		return nil, b.refuse("sp_model_kwargs has %s", slices.Sorted(maps.Keys(c.sampling))[0])
	}
	var more map[string]uint32
	if err := readConfig(filepath.Join(dir, "added_tokens.json"), &more); err != nil {
		return nil, err
	}
	for _, text := range slices.Sorted(maps.Keys(more)) {
		if c.added[more[text]].Content != text {
			return nil, &Error{fmt.Sprintf("added_tokens.json: %q with the id %d is not in added_tokens_decoder of "+
				"tokenizer_config.json, so nothing tells whether it is special", text, more[text]), b.cure()}
		}
	}
	return b, nil
}

func (b *Beside) cure() string {
	return "write the path of " + b.file + " itself, with `specials:`, if its own ids are those of the model; or " +
		cureSave
}

func (b *Beside) refuse(what string, args ...any) *Error {
	return &Error{"tokenizer_config.json: " + fmt.Sprintf(what, args...) + ", which cannot be followed", b.cure()}
}

// CheckPrefix returns an error if the files say that a text gets a space before it and the tokenizer's file says that
// it gets none, or the other way round.
func (b *Beside) CheckPrefix(isPrefixed bool) error {
	if b.config.prefix == nil || *b.config.prefix == isPrefixed {
		return nil
	}
	return &Error{fmt.Sprintf("tokenizer_config.json: add_prefix_space is %t, and %s says the opposite",
		*b.config.prefix, b.file), b.cure()}
}

// CheckClass returns an error for a class of transformers that may encode texts in another way than SentencePiece does.
// The Python files of Baichuan and InternLM 2 encode as SentencePiece.
func (b *Beside) CheckClass() error {
	switch strings.TrimSuffix(b.config.class, "Fast") {
	case "", "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "BaichuanTokenizer", "BaiChuanTokenizer",
		"InternLM2Tokenizer":
		return nil
	}
	return b.refuse("the tokenizer_class is %q", b.config.class)
}

// Own are the tokens of a tokenizer's file.
type Own struct {
	Specials map[string]uint32
	BOS, EOS string // keys of Specials; empty: the file names none
	Ends     string // the tokens of which each may be EOS, if the files beside it name several
	Len      int    // the number of ids, special tokens included
	// Token returns the text of an id. It is empty if no token has the id. isSymbol: the file says that the token
	// divides a text, so that it can become special.
	Token func(id uint32) (text string, isSymbol bool)
}

// Complete adds the special tokens, bos and eos that the files name. keep are special tokens that the mixture file
// names: the files need not call them special.
func (b *Beside) Complete(own *Own, keep map[string]uint32) error {
	own.Specials = maps.Clone(own.Specials)
	if own.Specials == nil {
		own.Specials = map[string]uint32{}
	}
	for _, id := range slices.Sorted(maps.Keys(b.config.added)) {
		a := b.config.added[id]
		a.ID = id
		if _, isKept := keep[a.Content]; isKept {
			continue
		}
		if what := own.add(a); what != "" {
			return &Error{fmt.Sprintf("tokenizer_config.json: added_tokens_decoder.%d: %q %s", id, a.Content, what),
				b.cure()}
		}
	}
	for _, m := range []struct {
		to   *string
		name string
		from idList
	}{{&own.BOS, b.config.bos, b.config.bosID}, {&own.EOS, b.config.eos, b.config.eosID}} {
		if m.name != "" {
			*m.to = m.name
			own.addSymbol(func(id uint32, text string) bool { return text == m.name })
		} else if *m.to == "" && len(m.from) == 1 {
			own.addSymbol(func(id uint32, text string) bool { return id == m.from[0] })
			*m.to = own.special(m.from[0])
		}
	}
	if own.EOS == "" && len(b.config.eosID) > 1 {
		var names []string
		for _, id := range b.config.eosID {
			text, _ := own.Token(id)
			names = append(names, cmp.Or(own.special(id), text))
		}
		own.Ends = strings.Join(names, ", ")
	}
	return nil
}

// add adds a token of added_tokens_decoder if it is special. It returns what contradicts the tokenizer's file.
func (o *Own) add(a Added) (what string) {
	other, isOwn := o.Specials[a.Content]
	text, isSymbol := o.Token(a.ID)
	old := o.special(a.ID)
	switch {
	case a.ID >= vocab.MaxTokens:
		return fmt.Sprintf("has an id behind %d, the highest supported one", vocab.MaxTokens-1)
	case isOwn && other != a.ID:
		return fmt.Sprintf("has the id %d in the tokenizer's file", other)
	case !a.Special && isSymbol && text == a.Content && old == "":
		return "" // it divides a text by the rules of the tokenizer's file
	case !a.Special:
		return "is not special, so it would divide a text"
	case old == "" && text != "" && !isSymbol:
		return fmt.Sprintf("has the id of the token %q, of which the tokenizer's file makes texts", text)
	}
	if old != a.Content {
		delete(o.Specials, old)
		for _, mark := range []*string{&o.BOS, &o.EOS} {
			if *mark != "" && *mark == old {
				*mark = a.Content
			}
		}
	}
	o.Specials[a.Content] = a.ID
	return ""
}

// special returns the special token of an id; it is empty if there is none.
func (o *Own) special(id uint32) string {
	for text, other := range o.Specials {
		if other == id {
			return text
		}
	}
	return ""
}

// addSymbol makes the first token that is meant a special token, if it is a symbol.
func (o *Own) addSymbol(isMeant func(id uint32, text string) bool) {
	for id := range uint32(o.Len) {
		text, isSymbol := o.Token(id)
		if isSymbol && isMeant(id, text) && o.special(id) == "" {
			if _, taken := o.Specials[text]; !taken {
				o.Specials[text] = id
			}
			return
		}
	}
}
