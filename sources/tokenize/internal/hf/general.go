package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"millrace/sources/tokenize/internal/charbpe"
	"millrace/sources/tokenize/internal/charsmap"
	"millrace/sources/tokenize/internal/normal"
	"millrace/sources/tokenize/internal/pipeline"
	"millrace/sources/tokenize/internal/regex"
	"millrace/sources/tokenize/internal/unigram"
	"millrace/sources/tokenize/internal/vocab"
)

// isByteLevel reports whether the pre-tokenizer has ByteLevel.
func (f *file) isByteLevel() bool {
	p := f.PreTokenizer
	isLevel := func(p *part) bool { return p != nil && p.Type == "ByteLevel" }
	return isLevel(p) || p != nil && p.Type == "Sequence" && slices.ContainsFunc(p.PreTokenizers, isLevel)
}

// pipeline reads a tokenizer whose model is not byte-level.
func (t *Tokenizer) pipeline(f *file, m anyModel) error {
	p := &pipeline.Pipeline{}
	characters := sync.OnceValue(pipeline.NewCharacters)
	if err := normalizers(p, characters, "normalizer", f.Normalizer); err != nil {
		return err
	}
	if err := splitter(p, characters, "pre_tokenizer", f.PreTokenizer); err != nil {
		return err
	}
	if err := t.checkFirst(p, f.Normalizer); err != nil {
		return err
	}
	if err := m.set(p); err != nil {
		return err
	}
	for _, part := range []any{f.Normalizer, f.PreTokenizer, f.Model} {
		text, err := json.Marshal(part) // compact
		if err != nil {
			return err
		}
		t.Parts = append(append(t.Parts, text...), '\n')
	}
	t.Pipeline = p
	return nil
}

// normalizers adds the normalizers of a part, in their order.
func normalizers(to *pipeline.Pipeline, characters func() pipeline.Characters, path string, p *part) error {
	if p == nil {
		return nil
	}
	var n pipeline.Normalizer
	switch p.Type {
	case "Sequence":
		for i, inner := range p.Normalizers {
			if err := normalizers(to, characters, fmt.Sprintf("%s.normalizers[%d]", path, i), inner); err != nil {
				return err
			}
		}
		return nil
	case "NFC":
		n = normal.C
	case "NFD":
		n = normal.D
	case "NFKC":
		n = normal.KC
	case "NFKD":
		n = normal.KD
	case "Lowercase":
		n = characters().Lower
	case "StripAccents":
		n = characters().StripMarks
	case "BertNormalizer":
		return p.bert(to, characters(), path)
	case "Prepend":
		n = pipeline.Prepend(p.Prepend)
	case "Replace":
		var err error
		if n, err = p.replace(path + ".pattern"); err != nil {
			return err
		}
		to.Spaces = to.Spaces || p.Pattern.String != nil && *p.Pattern.String == " " && p.Content == "\u2581"
	case "Strip":
		n = pipeline.Strip(p.Left, p.Right)
	case "Nmt":
		n = pipeline.Nmt
	case "Precompiled":
		rules, err := charsmap.Parse(p.Charsmap)
		if err != nil {
			return fmt.Errorf("%s.precompiled_charsmap: %w", path, err)
		}
		n = pipeline.Precompiled(rules)
	default:
		return refuse(path, "the normalizer is %q", p.Type)
	}
	to.Normalizers = append(to.Normalizers, n)
	return nil
}

// replace returns the normalizer Replace.
func (p *part) replace(path string) (pipeline.Normalizer, error) {
	if p.Pattern.Regex != nil {
		e, err := regex.Parse(*p.Pattern.Regex, regex.Oniguruma)
		if err != nil {
			return nil, fmt.Errorf("%s.Regex: %w", path, err)
		}
		return pipeline.ReplaceMatches(e, p.Content), nil
	}
	if p.Pattern.String == nil || *p.Pattern.String == "" {
		return nil, refuse(path, "it is no text to search for")
	}
	return pipeline.Replace(*p.Pattern.String, p.Content), nil
}

// splitter adds the splitter of a pre-tokenizer.
func splitter(to *pipeline.Pipeline, characters func() pipeline.Characters, path string, p *part) error {
	if p == nil {
		return nil
	}
	var next pipeline.Splitter
	switch p.Type {
	case "Sequence":
		for i, inner := range p.PreTokenizers {
			if err := splitter(to, characters, fmt.Sprintf("%s.pretokenizers[%d]", path, i), inner); err != nil {
				return err
			}
		}
		return nil
	case "Metaspace":
		if slices.ContainsFunc(to.Splitters, isMetaspace) {
			return refuse(path, "it is the second Metaspace")
		}
		m, err := p.metaspace(path)
		if err != nil {
			return err
		}
		next, to.Spaces = m, m.Replacement == '\u2581'
	case "Split":
		switch {
		case p.Pattern.String == nil || *p.Pattern.String == "":
			return refuse(path+".pattern", "it is no text to search for")
		case p.Behavior != "MergedWithPrevious" || p.Invert:
			return refuse(path+".behavior", "it is %q with invert %t", p.Behavior, p.Invert)
		}
		next = pipeline.SplitAfter(*p.Pattern.String)
	case "BertPreTokenizer":
		next = characters().Words()
	case "WhitespaceSplit":
		next = characters().WhitespaceSplit()
	case "Whitespace":
		next = characters().Whitespace()
	case "Digits":
		next = characters().Digits(p.IndividualDigits)
	case "Punctuation":
		if p.Behavior != "Isolated" {
			return refuse(path+".behavior", "it is %q", p.Behavior)
		}
		next = characters().Punctuation()
	default:
		return refuse(path, "it is %q", p.Type)
	}
	to.Splitters = append(to.Splitters, next)
	return nil
}

func isMetaspace(s pipeline.Splitter) bool {
	_, is := s.(pipeline.Metaspace)
	return is
}

// metaspace returns a Metaspace.
func (p *part) metaspace(path string) (m pipeline.Metaspace, err error) {
	m.Divides = p.Split == nil || *p.Split
	var n int
	if m.Replacement, n = utf8.DecodeRuneInString(p.Replacement); n == 0 || n != len(p.Replacement) {
		return m, refuse(path+".replacement", "%q is not one character", p.Replacement)
	}
	switch {
	case p.PrependScheme == "first":
		m.Prepend = pipeline.First
	case p.PrependScheme == "always", p.PrependScheme == "" && (p.AddPrefixSpace == nil || *p.AddPrefixSpace):
		m.Prepend = pipeline.Always
	case p.PrependScheme != "never" && p.PrependScheme != "":
		return m, refuse(path+".prepend_scheme", "it is %q", p.PrependScheme)
	}
	if p.AddPrefixSpace != nil && p.PrependScheme != "" && *p.AddPrefixSpace == (m.Prepend == pipeline.Never) {
		return m, refuse(path+".add_prefix_space", "it contradicts the prepend_scheme %q", p.PrependScheme)
	}
	return m, nil
}

// set sets a BPE model of characters.
func (m *model) set(to *pipeline.Pipeline) error {
	if err := m.lacks(); err != nil {
		return err
	}
	tokens, err := texts(m.Vocab)
	if err != nil {
		return err
	}
	c := charbpe.Config{Tokens: tokens, Fuse: m.FuseUnk, Whole: m.IgnoreMerges}
	if m.ByteFallback {
		if c.Bytes, err = byteIDs(m.Vocab); err != nil {
			return err
		}
	}
	if m.UnkToken != nil {
		var ok bool
		if c.Unk, ok = m.Vocab[*m.UnkToken]; !ok {
			return fmt.Errorf("model.unk_token: %q is not in model.vocab", *m.UnkToken)
		}
	} else if c.Bytes == nil {
		return refuse("model.unk_token", "there is none, so characters without a token would be left out")
	}
	for i, pair := range m.Merges {
		left, okLeft := m.Vocab[pair[0]]
		right, okRight := m.Vocab[pair[1]]
		id, ok := m.Vocab[pair[0]+pair[1]]
		if !ok || !okLeft || !okRight {
			return fmt.Errorf("model.merges[%d]: %q and %q, or both together, are not in model.vocab",
				i, pair[0], pair[1])
		}
		c.Merges = append(c.Merges, charbpe.Merge{Left: left, Right: right, ID: id})
	}
	bpe, err := charbpe.New(c)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	to.Model, to.Tokens, to.Bytes = pipeline.BPE{Model: bpe}, tokens, c.Bytes
	return nil
}

// unigramFile has the keys of a Unigram model.
type unigramFile struct {
	Type         string   `json:"type"`
	UnkID        *uint32  `json:"unk_id"`
	Vocab        []scored `json:"vocab"`
	ByteFallback bool     `json:"byte_fallback"`
}

// scored is a token with its score.
type scored struct {
	text  string
	score float64
}

// UnmarshalJSON reads ["text", score].
func (s *scored) UnmarshalJSON(text []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("read token: %s is not a text with its score", bytes.TrimSpace(text))
	}
	if err := json.Unmarshal(pair[0], &s.text); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &s.score)
}

// unkPenalty is the distance of a character without a piece from the least score.
const unkPenalty = 10

func (m *unigramFile) ids() map[string]uint32 {
	ids := make(map[string]uint32, len(m.Vocab))
	for i, s := range m.Vocab {
		ids[s.text] = uint32(i)
	}
	return ids
}

// set sets a Unigram model.
func (m *unigramFile) set(to *pipeline.Pipeline) error {
	if len(m.Vocab) >= vocab.MaxTokens {
		return fmt.Errorf("model.vocab: it has %d tokens, and at most %d are supported", len(m.Vocab), vocab.MaxTokens)
	}
	c := unigram.Config{Pieces: make([][]byte, len(m.Vocab)), Scores: make([]float64, len(m.Vocab)), Fused: true}
	least, ids := math.Inf(1), make(map[string]uint32, len(m.Vocab))
	for i, s := range m.Vocab {
		if _, twice := ids[s.text]; twice || s.text == "" {
			return fmt.Errorf("model.vocab[%d]: %q is empty or there twice", i, s.text)
		}
		c.Pieces[i], c.Scores[i], ids[s.text] = []byte(s.text), s.score, uint32(i)
		least = min(least, s.score)
	}
	c.UnkScore = least - unkPenalty
	if m.ByteFallback {
		var err error
		if c.Bytes, err = byteIDs(ids); err != nil {
			return err
		}
	}
	switch {
	case m.UnkID == nil:
		return refuse("model.unk_id", "there is none")
	case int64(*m.UnkID) >= int64(len(m.Vocab)):
		return fmt.Errorf("model.unk_id: it is %d, for %d tokens", *m.UnkID, len(m.Vocab))
	}
	c.Unk, c.HasUnk = *m.UnkID, true
	u, err := unigram.New(c)
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	to.Model, to.Tokens, to.Bytes = pipeline.Unigram{Model: u}, c.Pieces, c.Bytes
	return nil
}
