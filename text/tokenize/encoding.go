// Package tokenize turns text into token ids by byte-level byte pair encoding, with the ids of pip's tiktoken.
//
// The encoding's pattern divides a text into pieces: a word with the space before it, a run of digits, white space.
// Hand-written scanners follow the well-known patterns, and regular expressions all others. A whole piece is looked up
// among earlier pieces and in the vocabulary. Only a piece in neither is merged from its bytes.
//
// An [Encoding] is immutable and shared by the whole process. Each goroutine has its own [Encoder].
package tokenize

import (
	"fmt"
	"maps"
	"strings"

	"millrace/text/tokenize/internal/hf"
	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/pretokenize"
	"millrace/text/tokenize/internal/shared"
	"millrace/text/tokenize/internal/split"
	"millrace/text/tokenize/internal/vocab"
)

// Encoding is a vocabulary with its merge table and its pattern. It never changes and is safe for concurrent use. A
// process needs each only once: its tables take 5 to 25 MB.
type Encoding struct {
	name        string
	splitter    *split.Splitter
	stages      pretokenize.Stages            // divide text in place of splitter; nil: none
	prefixed    bool                          // a text, or each part of before, gets a space before it
	before      pretokenize.Stages            // divide text before splitter or stages do; nil: none
	normal      func(dst, text []byte) []byte // brings text into normal form C first; nil: none
	rewriters   pipeline.Normalizers          // rewrite text first, in place of normal; nil: none
	vocabulary  *vocab.Vocabulary
	pieces      *pieceTable
	merges      *mergeTable
	specials    map[uint32]string
	added       *hf.Divider // nil: no text contains an added token
	size        int
	bos, eos    mark
	model       model // encodes in place of splitter, pieces and merges; nil: none
	fingerprint [16]byte
	lent        *lender
}

// model is a kind of model that is not byte-level BPE.
type model interface {
	// Kind returns the name of the kind, for people.
	Kind() string
	// Len returns the number of ids of the model itself.
	Len() int
	// Token appends the text that an id stands for.
	Token(dst []byte, id uint32) []byte
	// newCoder returns the coder of an encoder.
	newCoder(enc *Encoder) coder
}

// coder encodes texts by one kind of model, with the scratch of one encoder.
type coder interface {
	// normalise returns the text in the normal form of the model. It is valid until the next call.
	normalise(text []byte) []byte
	// append appends the ids of a text in normal form, in which no added token counts. first: the text is at the
	// beginning of the document.
	append(dst []uint32, text []byte, first bool) []uint32
	// merge appends the ids of a piece that is not remembered.
	merge(dst []uint32, piece []byte) []uint32
	// remembers reports whether merge is called for pieces, so that it helps to remember them.
	remembers() bool
}

// mark is a token that begins or ends documents.
type mark struct {
	id    uint32
	there bool
}

// Name returns the name of the known vocabulary. For an unknown rank file, the name is the file's name without its
// ending.
func (e *Encoding) Name() string { return e.name }

// Pattern returns the pattern that divides text, by its name or as regular expressions, or the kind of a model that has
// none.
func (e *Encoding) Pattern() string {
	if e.model != nil {
		return e.model.Kind()
	}
	var parts []string
	if e.before != nil {
		parts = append(parts, e.before.String())
	}
	if e.prefixed {
		parts = append(parts, "a space before each part")
	}
	if e.stages != nil {
		parts = append(parts, e.stages.String())
	} else {
		parts = append(parts, e.splitter.Pattern().String())
	}
	return strings.Join(parts, ", ")
}

// VocabSize returns the number of ids, special tokens included: every id is below it.
func (e *Encoding) VocabSize() int { return e.size }

// BOS returns the token that begins a document, if there is one.
func (e *Encoding) BOS() (id uint32, ok bool) { return e.bos.id, e.bos.there }

// EOS returns the token that ends a document, if there is one.
func (e *Encoding) EOS() (id uint32, ok bool) { return e.eos.id, e.eos.there }

// Specials returns the texts of the special tokens. The caller owns the map.
func (e *Encoding) Specials() map[uint32]string { return maps.Clone(e.specials) }

// Fingerprint identifies everything that decides the ids of a document: ranks, pattern and special tokens. The
// encoding's name and file do not matter.
func (e *Encoding) Fingerprint() [16]byte { return e.fingerprint }

// Share moves the tables of byte-level BPE to a file of a directory, which all processes of a host map that share the
// same tables. Other models have none. The caller calls it before the first use. After an error, the process keeps its
// own tables.
func (e *Encoding) Share(dir string) error {
	if e.merges == nil {
		return nil
	}
	tables := append(e.vocabulary.Tables(), e.pieces.tables()...)
	return shared.Map(dir, append(tables, e.merges.tables()...)...)
}

// Decode appends the bytes of the ids to dst, special tokens by their texts. An id that is no token is an error; dst
// then has the bytes of the ids before it. Several ids may share the bytes of one character, so the bytes need not be
// valid UTF-8.
func (e *Encoding) Decode(dst []byte, ids []uint32) ([]byte, error) {
	for i, id := range ids {
		if e.model != nil && int64(id) < int64(e.model.Len()) {
			dst = e.model.Token(dst, id)
		} else if int64(id) < int64(e.vocabulary.Len()) && len(e.vocabulary.Token(id)) > 0 {
			dst = append(dst, e.vocabulary.Token(id)...)
		} else if special, ok := e.specials[id]; ok {
			dst = append(dst, special...)
		} else {
			return dst, fmt.Errorf("decode with tokenizer %s: id %d at position %d is none of its %d",
				e.name, id, i, e.size)
		}
	}
	return dst, nil
}
