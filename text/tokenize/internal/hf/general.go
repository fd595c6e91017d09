package hf

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"millrace/text/tokenize/internal/charbpe"
	"millrace/text/tokenize/internal/charsmap"
	"millrace/text/tokenize/internal/normal"
	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/pretokenize"
	"millrace/text/tokenize/internal/regex"
	"millrace/text/tokenize/internal/unigram"
	"millrace/text/tokenize/internal/vocab"
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
	if u, ok := m.(*unigramFile); ok && slices.ContainsFunc(u.Vocab, func(s scored) bool { return s.isOther }) {
		t.Parts = append(t.Parts, "scores of the library\n"...)
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
	case "ByteLevel":
		n = pipeline.SpellBytes()
		to.Alphabet = pipeline.Alphabet()
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
		e, err := expression(path+".Regex", *p.Pattern.Regex)
		if err != nil {
			return nil, err
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
	if p.Type == "Sequence" {
		for i, inner := range p.PreTokenizers {
			if err := splitter(to, characters, fmt.Sprintf("%s.pretokenizers[%d]", path, i), inner); err != nil {
				return err
			}
		}
		return nil
	}
	next, err := p.splitter(characters, path)
	if err != nil {
		return err
	}
	switch s := next.(type) {
	case pipeline.Metaspace:
		to.Spaces, to.Alphabet = s.Replacement == '\u2581', nil
	case pipeline.ByteLevel:
		to.Alphabet = pipeline.Alphabet()
	}
	to.Splitters = append(to.Splitters, next)
	return nil
}

// splitter returns the splitter of a pre-tokenizer that is no Sequence.
func (p *part) splitter(characters func() pipeline.Characters, path string) (pipeline.Splitter, error) {
	switch p.Type {
	case "Metaspace":
		return p.metaspace(path)
	case "ByteLevel":
		if !p.usesRegex() {
			return pipeline.NewByteLevel(p.prefixes(), nil), nil
		}
		e, err := regex.Parse(pretokenize.GPT2, regex.Oniguruma)
		return pipeline.NewByteLevel(p.prefixes(), e), err
	case "Split":
		return p.split(path)
	case "CharDelimiterSplit":
		if p.Delimiter == nil || utf8.RuneCountInString(*p.Delimiter) != 1 {
			return nil, fmt.Errorf("%s.delimiter: it is not one character", path)
		}
		return pipeline.At{Find: pipeline.Literal(*p.Delimiter), Behavior: pipeline.Removed}, nil
	case "FixedLength":
		if p.Length == nil || *p.Length < 1 {
			return nil, fmt.Errorf("%s.length: it is not a number above 0", path)
		}
		return pipeline.Chars(*p.Length), nil
	case "BertPreTokenizer":
		return characters().Words(), nil
	case "WhitespaceSplit":
		return characters().WhitespaceSplit(), nil
	case "Whitespace":
		return characters().Whitespace(), nil
	case "Digits":
		return characters().Digits(p.IndividualDigits), nil
	case "Punctuation":
		if b := pipeline.Behavior(p.Behavior); b.IsKnown() {
			return characters().Punctuation(b), nil
		}
		return nil, refuse(path+".behavior", "it is %q", p.Behavior)
	}
	return nil, refuse(path, "it is %q", p.Type)
}

// split returns the splitter Split. An empty pattern matches between all characters.
func (p *part) split(path string) (pipeline.Splitter, error) {
	at := pipeline.At{Behavior: pipeline.Behavior(p.Behavior), Invert: p.Invert}
	text := cmp.Or(p.Pattern.String, p.Pattern.Regex)
	switch {
	case !at.Behavior.IsKnown():
		return nil, refuse(path+".behavior", "it is %q", p.Behavior)
	case text == nil:
		return nil, refuse(path+".pattern", "it is neither a text nor a regular expression")
	case *text == "" && at.Behavior == pipeline.Removed && at.Invert:
		return nil, refuse(path, "it removes all of the text")
	case *text == "":
		return pipeline.Chars(1), nil
	case p.Pattern.String != nil:
		at.Find = pipeline.Literal(*text)
		return at, nil
	}
	e, err := expression(path+".pattern.Regex", *text)
	at.Find = e
	return at, err
}

// expression reads a regular expression. One that is not read may be right for the library.
func expression(path, text string) (*regex.Expression, error) {
	e, err := regex.Parse(text, regex.Oniguruma)
	if err != nil {
		return nil, &refusal{path + ": " + err.Error(), cureIDs}
	}
	return e, nil
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
	switch {
	case to.Alphabet != nil && m.hasAlphabet(to.Alphabet):
		c.Unk = charbpe.NoUnk
	case m.ByteFallback:
		if c.Bytes, err = byteIDs(m.Vocab); err != nil {
			return err
		}
	case m.UnkToken == nil:
		return refuse("model.unk_token", "there is none, so characters without a token would be left out")
	default:
		var ok bool
		if c.Unk, ok = m.Vocab[*m.UnkToken]; !ok {
			return fmt.Errorf("model.unk_token: %q is not in model.vocab", *m.UnkToken)
		}
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

// hasAlphabet reports whether each character that stands for a byte is a token.
func (m *model) hasAlphabet(alphabet map[rune]byte) bool {
	for r := range alphabet {
		if _, ok := m.Vocab[string(r)]; !ok {
			return false
		}
	}
	return true
}

// unigramFile has the keys of a Unigram model.
type unigramFile struct {
	Type         string   `json:"type"`
	UnkID        *uint32  `json:"unk_id"`
	Vocab        []scored `json:"vocab"`
	ByteFallback bool     `json:"byte_fallback"`
}

// scored is a token with its score, as the library reads it.
type scored struct {
	text    string
	score   float64
	isOther bool // the score is not the float nearest to the number in the file
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
	var nearest float64
	if err := json.Unmarshal(pair[1], &nearest); err != nil {
		return err
	}
	var err error
	s.score, err = number(pair[1])
	s.isOther = s.score != nearest
	return err
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
