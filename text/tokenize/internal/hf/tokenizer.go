package hf

import (
	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/pretokenize"
	"millrace/text/tokenize/internal/split"
	"millrace/text/tokenize/internal/vocab"
)

// Tokenizer is the content of a tokenizer.json.
type Tokenizer struct {
	Vocabulary *vocab.Vocabulary
	Pattern    split.Pattern
	Stages     pretokenize.Stages // unless nil, in place of Pattern
	Prefixed   bool               // a text, or each part of Before, gets a space before it unless it has one
	Before     pretokenize.Stages // divide text before Pattern or Stages do; nil: none
	NFC        bool               // text is brought into normal form C first
	// Normalizers, unless nil, rewrite text first, in place of NFC. Then Parts are their description.
	Normalizers pipeline.Normalizers
	Added       []Added
	BOS, EOS    string // of the files beside it, or of the post-processor; empty: they name none
	Ends        string // the tokens of which each may be EOS, if the files name several

	// Pipeline, unless nil, encodes in place of Vocabulary, Pattern and Normalizers. Parts are its description.
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
