// Package hf reads the tokenizer.json of Hugging Face's tokenizers.
//
// It understands byte-level BPE with the pre-tokenizers of the packages split and pretokenize, and all tokenizers that
// the package pipeline follows. It refuses everything else by its name and its place in the file. So ids are never
// approximated.
package hf

import (
	"fmt"
)

// parse returns the tokenizer of a tokenizer.json, with the settings of the files beside it. An error names the place
// in the file. Memory is proportional to the length of content.
func parse(content []byte, c *config) (*Tokenizer, error) {
	var f file
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	if err := f.checkPrefix(c); err != nil {
		return nil, err
	}
	m, err := f.model()
	if err != nil {
		return nil, err
	}
	return f.build(m, &Tokenizer{Added: f.Added}, c)
}

// build completes a tokenizer, which may name bos and eos, by its parts.
func (f *file) build(m anyModel, t *Tokenizer, c *config) (*Tokenizer, error) {
	if err := t.postProcessor("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	ids := m.ids()
	if err := t.merge(c.added, ids); err != nil {
		return nil, err
	}
	t.marks(c, ids)
	if err := t.checkIDs(ids); err != nil {
		return nil, err
	}
	if bpe, ok := m.(*model); ok && f.isByteLevel() {
		if fast := *t; fast.byteLevel(f, bpe) == nil {
			return &fast, nil
		}
	}
	return t, t.pipeline(f, m)
}

// byteLevel reads a tokenizer of byte-level BPE that package split or pretokenize divides. An error is not final:
// package pipeline follows more, and is slower.
func (t *Tokenizer) byteLevel(f *file, m *model) error {
	if err := t.normalizer(f.Normalizer); err != nil {
		return err
	}
	if err := t.preTokenizer(f.PreTokenizer); err != nil {
		return err
	}
	return t.byteBPE(m)
}

// checkPrefix returns an error if tokenizer_config.json and a ByteLevel by itself do not agree on the space before a
// text. Some classes and releases of transformers follow the one, and some the other.
func (f *file) checkPrefix(c *config) error {
	p, says := f.PreTokenizer, c.prefix != nil && *c.prefix
	if !c.isThere || p == nil || p.Type != "ByteLevel" || p.prefixes() == says {
		return nil
	}
	what := fmt.Sprintf("is %t", says)
	if c.prefix == nil {
		what = "is not there, which is as false"
	}
	return &Error{
		fmt.Sprintf("tokenizer_config.json: add_prefix_space %s, and in tokenizer.json it is %t", what, !says),
		"write the path of tokenizer.json, with `bos:` and `eos:`, if that file is right; or " + cureSave,
	}
}

// model decodes the model.
func (f *file) model() (anyModel, error) {
	kind, err := kindOf(f.Model)
	if err != nil {
		return nil, fmt.Errorf("model: parse JSON: %w", err)
	}
	var m anyModel
	switch {
	case kind == "BPE" || kind == "":
		return decodeBPE(f.Model)
	case kind == "Unigram":
		m = &unigramFile{}
	case kind == "WordPiece":
		m = &wordPieceFile{}
	case kind == "WordLevel":
		m = &wordLevelFile{}
	default:
		return nil, refuse("model.type", "it is %q", kind)
	}
	if err := decode(f.Model, m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return m, nil
}
