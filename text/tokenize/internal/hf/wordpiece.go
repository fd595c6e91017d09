package hf

import (
	"fmt"

	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/wordpiece"
)

// bert adds the normalizers of BERT, in the order in which the library applies them.
func (p *part) bert(to *pipeline.Pipeline, c pipeline.Characters, path string) error {
	if p.CleanText == nil || p.ChineseChars == nil || p.Lowercase == nil {
		return refuse(path, "it lacks clean_text, handle_chinese_chars or lowercase")
	}
	strips := *p.Lowercase
	if p.StripAccents != nil {
		strips = *p.StripAccents
	}
	for _, step := range []struct {
		on bool
		n  pipeline.Normalizer
	}{{*p.CleanText, c.Clean}, {*p.ChineseChars, c.Part}, {strips, c.Unaccent}, {*p.Lowercase, c.Lower}} {
		if step.on {
			to.Normalizers = append(to.Normalizers, step.n)
		}
	}
	return nil
}

// wordPieceFile has the keys of a WordPiece model.
type wordPieceFile struct {
	Type     string            `json:"type"`
	UnkToken string            `json:"unk_token"`
	Prefix   string            `json:"continuing_subword_prefix"`
	MaxChars *int              `json:"max_input_chars_per_word"`
	Vocab    map[string]uint32 `json:"vocab"`
}

func (m *wordPieceFile) ids() map[string]uint32 { return m.Vocab }

// set sets a WordPiece model.
func (m *wordPieceFile) set(to *pipeline.Pipeline) error {
	tokens, err := texts(m.Vocab)
	if err != nil {
		return err
	}
	unk, ok := m.Vocab[m.UnkToken]
	switch {
	case !ok:
		return fmt.Errorf("model.unk_token: %q is not in model.vocab", m.UnkToken)
	case m.MaxChars == nil || *m.MaxChars < 0:
		return refuse("model.max_input_chars_per_word", "there is none")
	}
	to.Model = pipeline.WordPiece{Model: wordpiece.New(tokens, m.Prefix, unk, *m.MaxChars)}
	to.Tokens = tokens
	return nil
}

// wordLevelFile has the keys of a WordLevel model.
type wordLevelFile struct {
	Type     string            `json:"type"`
	UnkToken string            `json:"unk_token"`
	Vocab    map[string]uint32 `json:"vocab"`
}

func (m *wordLevelFile) ids() map[string]uint32 { return m.Vocab }

// set sets a WordLevel model.
func (m *wordLevelFile) set(to *pipeline.Pipeline) error {
	tokens, err := texts(m.Vocab)
	if err != nil {
		return err
	}
	unk, ok := m.Vocab[m.UnkToken]
	if !ok {
		return fmt.Errorf("model.unk_token: %q is not in model.vocab", m.UnkToken)
	}
	to.Model, to.Tokens = pipeline.NewWordLevel(tokens, unk), tokens
	return nil
}
