package hf

import (
	"slices"
	"strings"
	"unicode/utf8"

	"millrace/text/tokenize/internal/pipeline"
)

// origin says where the characters of a normalised text come from. The library keeps their places in the text, and a
// Metaspace with the prepend_scheme first prepends to each part whose first character comes from the beginning.
type origin uint8

const (
	// oneByOne: only the first character comes from the beginning of the text, or the normalised text begins with a
	// space.
	oneByOne origin = iota
	// several characters may come from it, among them the first one.
	several
	// unsure: the first character may come from another place.
	unsure
)

// origin returns the origin of a text that a normalizer has rewritten. See tokenizer/normalizer.rs of tokenizers 0.23.
func (p *part) origin(mark rune) origin {
	if p == nil {
		return oneByOne
	}
	switch p.Type {
	case "Sequence":
		of := oneByOne
		for _, inner := range p.Normalizers {
			of = max(of, inner.origin(mark))
		}
		return of
	case "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Prepend", "Precompiled", "ByteLevel":
		return several
	case "Strip":
		if !p.Left {
			return oneByOne
		}
	case "Replace":
		isOne := p.Pattern.String != nil && utf8.RuneCountInString(*p.Pattern.String) == 1
		isSpace := strings.HasPrefix(p.Content, " ") || strings.HasPrefix(p.Content, string(mark))
		switch {
		case p.Content == "" || !isOne && !isSpace:
		case utf8.RuneCountInString(p.Content) == 1:
			return oneByOne
		default:
			return several
		}
	}
	return unsure
}

// checkFirst refuses a Metaspace with the prepend_scheme first if the parts to which it prepends depend on more than
// their places in the normalised text.
func (t *Tokenizer) checkFirst(p *pipeline.Pipeline, normalizer *part) error {
	const scheme = "pre_tokenizer: the prepend_scheme of Metaspace"
	for i, s := range p.Splitters {
		m, is := s.(pipeline.Metaspace)
		if !is || m.Prepend != pipeline.First {
			continue
		}
		if slices.ContainsFunc(p.Splitters[:i], rewrites) {
			return refuse(scheme, "it is first behind a ByteLevel or another Metaspace")
		}
		isIn := func(a Added) bool { return a.Normalized && !a.Special }
		switch of := normalizer.origin(m.Replacement); {
		case of == unsure:
			return refuse(scheme, "it is first, and the normalizer may remove the beginning of a text")
		case of == several && i > 0:
			return refuse(scheme, "it is first behind another part, and the normalizer may write several characters "+
				"for one")
		case of == several && slices.ContainsFunc(t.Added, isIn):
			return refuse(scheme, "it is first, an added token matches in the normal form, and the normalizer may "+
				"write several characters for one")
		}
	}
	return nil
}

// rewrites reports whether a splitter writes the parts anew.
func rewrites(s pipeline.Splitter) bool {
	switch s.(type) {
	case pipeline.Metaspace, pipeline.ByteLevel:
		return true
	}
	return false
}
