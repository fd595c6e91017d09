package hf

import (
	"fmt"

	"millrace/sources/tokenize/internal/sentencepiece"
	"millrace/sources/tokenize/internal/vocab"
)

// space stands for a space in tokens, U+2581.
const space = "\u2581"

// chars takes a model that spells characters without a token by bytes.
func (t *Tokenizer) chars(f *file, m *model) error {
	if m.IgnoreMerges {
		return refuse("model.ignore_merges", "it is true beside byte_fallback")
	}
	if err := m.checkAdded(t.Added); err != nil {
		return err
	}
	from := sentencepiece.Merges{}
	if m.UnkToken != nil {
		from.Unk = *m.UnkToken
	}
	var err error
	if from.Spaces, err = spaces(f.Normalizer, f.PreTokenizer); err != nil {
		return err
	}
	t.Vocabulary = &vocab.Vocabulary{}
	if from.Tokens, err = m.tokens(nil, func(key string) ([]byte, error) { return []byte(key), nil }); err != nil {
		return err
	}
	if from.List, err = m.merges(); err != nil {
		return err
	}
	if t.Chars, err = sentencepiece.FromMerges(from); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

// checkAdded refuses added tokens that do not fit the vocabulary.
func (m *model) checkAdded(added []Added) error {
	names := make(map[uint32]string, len(m.Vocab))
	for key, id := range m.Vocab {
		names[id] = key
	}
	for i, a := range added {
		path := fmt.Sprintf("added_tokens[%d]", i)
		id, isThere := m.Vocab[a.Content]
		name, isTaken := names[a.ID]
		switch {
		case a.Normalized && !a.Special:
			return refuse(path+".normalized", "it is true beside byte_fallback")
		case isThere && id != a.ID, isTaken && name != a.Content:
			return fmt.Errorf("%s: %q and id %d do not belong together in model.vocab", path, a.Content, a.ID)
		}
	}
	return nil
}

// spaces returns the rules of a normalizer and a pre-tokenizer. One of the two must replace spaces.
func spaces(normal, pre *part) (s sentencepiece.Spaces, err error) {
	isReplaced, err := replacement(normal, &s)
	if err != nil {
		return s, err
	}
	const path = "pre_tokenizer"
	switch {
	case pre == nil && isReplaced:
		return s, nil
	case pre == nil:
		return s, refuse(path, "there is none, and the normalizer does not replace spaces")
	case pre.Type == "Split" && isReplaced && pre.Pattern.String != nil && *pre.Pattern.String == " ":
		return s, nil // no space is left to divide at
	case pre.Type == "Metaspace" && normal == nil:
		return s, pre.metaspace(&s)
	}
	return s, refuse(path, "it is %q", pre.Type)
}

// replacement takes a normalizer: Prepend and Replace, or Replace alone.
func replacement(p *part, s *sentencepiece.Spaces) (isReplaced bool, err error) {
	switch {
	case p == nil:
		return false, nil
	case p.isReplace():
		return true, nil
	case p.Type == "Sequence":
		list := p.Normalizers
		if len(list) == 2 && list[0].isPrepend() {
			s.Prefix, list = sentencepiece.Always, list[1:]
		}
		if len(list) == 1 && list[0].isReplace() {
			return true, nil
		}
	}
	return false, refuse("normalizer", "it is not Prepend of %q and Replace of spaces by it, nor Replace alone", space)
}

func (p *part) isPrepend() bool { return p != nil && p.Type == "Prepend" && p.Prepend == space }

func (p *part) isReplace() bool {
	return p != nil && p.Type == "Replace" && p.Pattern.String != nil && *p.Pattern.String == " " &&
		p.Content != nil && *p.Content == space
}

// metaspace takes the rules of the pre-tokenizer Metaspace. Older files have add_prefix_space for its scheme.
func (p *part) metaspace(s *sentencepiece.Spaces) error {
	scheme := "always"
	switch {
	case p.Replacement != space:
		return refuse("pre_tokenizer.replacement", "it is %q", p.Replacement)
	case p.PrependScheme != nil:
		scheme = *p.PrependScheme
	case p.AddPrefixSpace != nil && !*p.AddPrefixSpace:
		scheme = "never"
	}
	prefixes := map[string]sentencepiece.Prefix{
		"always": sentencepiece.Missing, "first": sentencepiece.First, "never": sentencepiece.Never,
	}
	var ok bool
	if s.Prefix, ok = prefixes[scheme]; !ok {
		return refuse("pre_tokenizer.prepend_scheme", "it is %q", scheme)
	}
	s.Cut = p.Split == nil || *p.Split
	return nil
}
