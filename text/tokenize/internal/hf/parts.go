package hf

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"millrace/text/tokenize/internal/chars"
	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/pretokenize"
	"millrace/text/tokenize/internal/split"
	"millrace/text/tokenize/internal/vocab"
)

// normalizer takes the normalizers of a byte-level model. NFC by itself has a faster way.
func (t *Tokenizer) normalizer(p *part) error {
	if p.isNFC() {
		t.NFC = p.has("NFC")
		return nil
	}
	all := &pipeline.Pipeline{}
	if err := normalizers(all, sync.OnceValue(pipeline.NewCharacters), "normalizer", p); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	t.Normalizers, t.Parts = all.Normalizers, text
	return err
}

// isNFC reports whether a normalizer is NFC or none.
func (p *part) isNFC() bool {
	if p == nil || p.Type == "NFC" {
		return true
	}
	for _, inner := range p.Normalizers {
		if !inner.isNFC() {
			return false
		}
	}
	return p.Type == "Sequence"
}

// has reports whether a normalizer is of a kind, or has one of it.
func (p *part) has(kind string) bool {
	return p != nil &&
		(p.Type == kind || slices.ContainsFunc(p.Normalizers, func(inner *part) bool { return inner.has(kind) }))
}

// preTokenizer takes ByteLevel, by itself or behind Digits or Splits by regular expressions.
func (t *Tokenizer) preTokenizer(p *part) error {
	const path = "pre_tokenizer"
	if p == nil {
		return refuse(path, "there is none")
	}
	if p.Type == "ByteLevel" {
		if p.usesRegex() && !p.prefixes() {
			t.Pattern = split.R50k
			return nil
		}
		return t.stages(path, []*part{p})
	}
	if p.Type != "Sequence" {
		return refuse(path, "it is %q", p.Type)
	}
	if p.isDigits() {
		t.Pattern = split.R50kDigits
		return nil
	}
	return t.stages(path+".pretokenizers", p.PreTokenizers)
}

// isDigits reports whether a sequence is Digits, one by one, and ByteLevel without a prefix space.
func (p *part) isDigits() bool {
	list := p.PreTokenizers
	return len(list) == 2 && list[0] != nil && list[1] != nil && list[0].Type == "Digits" &&
		list[0].IndividualDigits && list[1].Type == "ByteLevel" && list[1].usesRegex() && !list[1].prefixes()
}

// stages takes ByteLevel, the parts before it, and the parts after it, which see the characters that stand for bytes.
// One Split by a pattern of the package split is this pattern, as is ByteLevel's own expression with a prefix space.
func (t *Tokenizer) stages(path string, list []*part) error {
	isMapped := false
	for i, p := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		var stage pretokenize.Stage
		var err error
		switch {
		case p == nil:
			return refuse(at, "it is null")
		case i == 0 && len(list) == 2 && p.isKnownSplit() && list[1].isBare():
			t.Pattern, _ = split.Parse(*p.Pattern.Regex)
			return nil
		case p.Type == "ByteLevel" && !isMapped:
			isMapped = true
			if p.prefixes() {
				t.Prefixed, t.Before, t.Stages = true, t.Stages, nil
			}
			switch isLast := i == len(list)-1; {
			case p.usesRegex() && isLast && t.Prefixed:
				t.Pattern = split.R50k
			case p.usesRegex():
				stage, err = pretokenize.Split(pretokenize.GPT2)
			case isLast && t.Stages == nil:
				stage = pretokenize.Whole{}
			}
		case isMapped:
			stage, err = mappedStage(at, p)
		default:
			stage, err = splitStage(at, p)
		}
		if err != nil {
			return err
		}
		if stage != nil {
			t.Stages = append(t.Stages, stage)
		}
	}
	return nil
}

// usesRegex reports whether ByteLevel divides by its own expression.
func (p *part) usesRegex() bool { return p.UseRegex == nil || *p.UseRegex }

// prefixes reports whether ByteLevel writes a space before each part.
func (p *part) prefixes() bool { return p.AddPrefixSpace != nil && *p.AddPrefixSpace }

// isBare reports whether a part is a ByteLevel that does not divide a text and does not write spaces.
func (p *part) isBare() bool {
	return p != nil && p.Type == "ByteLevel" && !p.usesRegex() && !p.prefixes()
}

// isKnownSplit reports whether a part divides by a pattern of the package split. Such a pattern matches everywhere, so
// no text is between two matches. The engine of tokenizer.json reads {1,3}+ in another way than that of tiktoken.
func (p *part) isKnownSplit() bool {
	if p.Type != "Split" || p.Pattern.Regex == nil || strings.Contains(*p.Pattern.Regex, "}+") {
		return false
	}
	_, ok := split.Parse(*p.Pattern.Regex)
	return ok && (p.isolates() || p.keepsMatches())
}

// isolates reports whether matches and the texts between them are parts.
func (p *part) isolates() bool { return p.Behavior == "Isolated" }

// keepsMatches reports whether the texts between matches are removed.
func (p *part) keepsMatches() bool { return p.Behavior == "Removed" && p.Invert }

// mappedStage takes a part behind ByteLevel: Digits, or a Split at ASCII characters, which stand for themselves there.
func mappedStage(path string, p *part) (pretokenize.Stage, error) {
	switch {
	case p.Type == "Digits":
		return pretokenize.ByteDigits{Each: p.IndividualDigits}, nil
	case p.Type == "Split" && p.Pattern.Regex != nil && strings.Trim(*p.Pattern.Regex, asciiExpression) == "":
		return splitStage(path, p)
	}
	return nil, refuse(path, "it is %q behind ByteLevel", p.Type)
}

// asciiExpression has the characters of expressions like [0-9][0-9][0-9].
const asciiExpression = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ[]-"

// splitStage takes a part before ByteLevel.
func splitStage(path string, p *part) (pretokenize.Stage, error) {
	switch {
	case p.Type == "Digits":
		return pretokenize.Digits(chars.New(), p.IndividualDigits), nil
	case p.Type == "Punctuation" && (p.isolates() || p.Behavior == "Contiguous"):
		return pretokenize.Punctuation(chars.New(), p.isolates()), nil
	case p.Type != "Split":
		return nil, refuse(path, "it is %q", p.Type)
	}
	if p.Pattern.Regex == nil {
		return nil, refuse(path+".pattern", "it is no regular expression")
	}
	newStage := pretokenize.Split
	switch {
	case p.isolates():
	case p.keepsMatches():
		newStage = pretokenize.Matches
	default:
		return nil, refuse(path+".behavior", "it is %q with invert %t", p.Behavior, p.Invert)
	}
	stage, err := newStage(*p.Pattern.Regex)
	if err != nil {
		return nil, fmt.Errorf("%s.pattern.Regex: %w", path, err)
	}
	return stage, nil
}

// postProcessor takes bos and eos from a template. The rest of it is not part of a document.
func (t *Tokenizer) postProcessor(path string, p *part) error {
	if p == nil {
		return nil
	}
	switch p.Type {
	case "ByteLevel":
	case "BertProcessing", "RobertaProcessing":
		t.BOS, t.EOS = string(p.Cls), string(p.Sep)
	case "Sequence":
		for i, inner := range p.Processors {
			if err := t.postProcessor(fmt.Sprintf("%s.processors[%d]", path, i), inner); err != nil {
				return err
			}
		}
	case "TemplateProcessing":
		for i, s := range p.Single {
			if s.SpecialToken == nil {
				continue
			}
			if i == 0 {
				t.BOS = s.SpecialToken.ID
			} else if i == len(p.Single)-1 {
				t.EOS = s.SpecialToken.ID
			}
		}
	default:
		return refuse(path, "it is %q", p.Type)
	}
	return nil
}

// byteBPE sets the vocabulary of a byte-level model.
func (t *Tokenizer) byteBPE(m *model) error {
	if err := m.lacks(); err != nil {
		return err
	}
	if m.ByteFallback {
		return refuse("model.byte_fallback", "it is true")
	}
	tokens, err := m.tokens(t.Added, maps.Keys(m.Vocab))
	if err != nil { // in order, so that the error is the same each time
		_, err = m.tokens(t.Added, slices.Values(slices.Sorted(maps.Keys(m.Vocab))))
	}
	if err != nil {
		return err
	}
	merges := make([]vocab.Merge, len(m.Merges))
	for i, pair := range m.Merges {
		left, okLeft := m.Vocab[pair[0]]
		right, okRight := m.Vocab[pair[1]]
		id, ok := m.Vocab[pair[0]+pair[1]]
		if !ok || !okLeft || !okRight {
			return fmt.Errorf("model.merges[%d]: %q and %q, or both together, are not in model.vocab",
				i, pair[0], pair[1])
		}
		merges[i] = vocab.Merge{Left: left, Right: right, ID: id}
	}
	if t.Vocabulary, err = vocab.FromMerges(tokens, merges, m.IgnoreMerges); err != nil {
		return fmt.Errorf("model: %w", err)
	}
	return nil
}

// tokens returns the bytes of each id. An added token that the model also lists is left to the added tokens. keys are
// those of the vocabulary.
func (m *model) tokens(added []Added, keys iter.Seq[string]) ([][]byte, error) {
	own := make(map[string]bool, len(added))
	for _, a := range added {
		own[a.Content] = true
	}
	most := uint32(0)
	for key := range keys {
		id := m.Vocab[key]
		if err := checkID(key, id); err != nil {
			return nil, err
		}
		most = max(most, id)
	}
	if int(most) > 2*len(m.Vocab)+1<<12 {
		return nil, fmt.Errorf("model.vocab: the highest id is %d, for %d tokens", most, len(m.Vocab))
	}
	bytesOf := pipeline.Alphabet()
	tokens := make([][]byte, most+1)
	for key := range keys {
		id := m.Vocab[key]
		if own[key] {
			continue
		}
		token, isInText := spelling(bytesOf, key)
		if len(key) == 0 || tokens[id] != nil {
			return nil, fmt.Errorf("model.vocab[%q]: the token is empty, or id %d is there twice", key, id)
		}
		if isInText {
			tokens[id] = token
		}
	}
	return tokens, nil
}

// spelling returns the bytes of a token by its key. Command R has tokens with characters that stand for no byte: such
// tokens are in no text.
func spelling(bytesOf map[rune]byte, key string) (token []byte, isInText bool) {
	token = make([]byte, 0, len(key))
	for _, r := range key {
		b, ok := bytesOf[r]
		if !ok {
			return nil, false
		}
		token = append(token, b)
	}
	return token, true
}
