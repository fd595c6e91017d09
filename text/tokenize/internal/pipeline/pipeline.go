// Package pipeline encodes text as Hugging Face's tokenizers do: normalizers rewrite it, a splitter divides it, and a
// model encodes each part.
package pipeline

import (
	"unicode/utf8"

	"millrace/text/tokenize/internal/charbpe"
	"millrace/text/tokenize/internal/unigram"
)

// Pipeline has all parts of a tokenizer.json that turn text without added tokens into ids. It never changes and is safe
// for concurrent use.
type Pipeline struct {
	Normalizers Normalizers
	Splitters   Sequence // none: the text stays whole
	Model       Model
	Tokens      [][]byte      // by id; an empty entry is an unused id
	Bytes       *[256]uint32  // the ids that stand for bytes; nil: none
	Spaces      bool          // U+2581 in a token stands for a space
	Alphabet    map[rune]byte // the bytes for which characters of a token stand; nil: they stand for none
}

// Model encodes the parts of a text.
type Model interface {
	// Pieces finds the next pieces of a part from pos on that are encoded independently. It sets ends to their ends
	// and returns their number.
	Pieces(part []byte, pos int, ends []int) int
	// Append appends the ids of a piece.
	Append(dst []uint32, piece []byte, s *Scratch) []uint32
	// Kind returns the name of the kind of model, for people.
	Kind() string
}

// Splitter divides a normalised text. It calls do for each part, which is valid until do returns. first: the text is at
// the beginning of the document.
type Splitter interface {
	Split(text []byte, first bool, s *Scratch, do func(part []byte))
}

// Scratch is the memory of one goroutine.
type Scratch struct {
	merger  charbpe.Merger
	unigram unigram.Scratch
	texts   [2][]byte
	level   int      // the number of splitters from the one that is called on
	rooms   [][]byte // by level, the memory of a splitter that writes the parts anew
}

// scratchMax bounds the memory that a Scratch keeps for a text.
const scratchMax = 1 << 20

// Normalize returns the normalised text, as [Normalizers.Normalize] does.
func (p *Pipeline) Normalize(text []byte, s *Scratch) []byte { return p.Normalizers.Normalize(text, s) }

// Normalizers rewrite a text one after the other.
type Normalizers []Normalizer

// Normalize returns the normalised text. It is UTF-8 for every text, and valid until the next call.
func (list Normalizers) Normalize(text []byte, s *Scratch) []byte {
	next := 0
	apply := func(n Normalizer) {
		to := n(s.texts[next][:0], text)
		if text = to; cap(to) <= scratchMax {
			s.texts[next] = to
		}
		next = 1 - next
	}
	if !utf8.Valid(text) {
		apply(toUTF8)
	}
	for _, n := range list {
		if len(text) > 0 {
			apply(n)
		}
	}
	return text
}

func toUTF8(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		dst, text = utf8.AppendRune(dst, r), text[n:]
	}
	return dst
}

// Split divides a normalised text.
func (p *Pipeline) Split(text []byte, first bool, s *Scratch, do func(part []byte)) {
	p.Splitters.Split(text, first, s, do)
}

// Kind returns the name of the kind of model, for people.
func (p *Pipeline) Kind() string { return p.Model.Kind() }

// Len returns the number of ids of the model.
func (p *Pipeline) Len() int { return len(p.Tokens) }

// Token appends the text that an id stands for.
func (p *Pipeline) Token(dst []byte, id uint32) []byte {
	if p.Bytes != nil {
		for b, of := range p.Bytes {
			if of == id {
				return append(dst, byte(b))
			}
		}
	}
	if p.Alphabet != nil {
		return appendSpelt(dst, p.Tokens[id], p.Alphabet)
	}
	if !p.Spaces {
		return append(dst, p.Tokens[id]...)
	}
	for text := p.Tokens[id]; len(text) > 0; {
		r, n := utf8.DecodeRune(text)
		if r == space {
			r = ' '
		}
		dst, text = utf8.AppendRune(dst, r), text[n:]
	}
	return dst
}

// BPE is a model of characters and merges.
type BPE struct{ *charbpe.Model }

// Kind returns the name of the kind of model.
func (BPE) Kind() string { return "BPE over characters" }

// Append appends the ids of a piece.
func (m BPE) Append(dst []uint32, piece []byte, s *Scratch) []uint32 {
	return s.merger.Append(dst, m.Model, piece)
}

// Unigram is a model that encodes each part as a whole.
type Unigram struct{ *unigram.Model }

// Kind returns the name of the kind of model.
func (Unigram) Kind() string { return "Unigram" }

// Pieces returns the part as one piece.
func (Unigram) Pieces(part []byte, _ int, ends []int) int {
	ends[0] = len(part)
	return 1
}

// Append appends the ids of a part.
func (m Unigram) Append(dst []uint32, part []byte, s *Scratch) []uint32 {
	return m.Model.Append(dst, part, nil, &s.unigram)
}
