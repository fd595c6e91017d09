// Package tokenize turns text into token ids: byte-level byte pair encoding, exactly as pip's tiktoken does it, several
// times as fast.
//
// A text falls into pieces (a word with the space before it, a run of digits, white space) by the encoding's pattern,
// which a hand-written scanner follows. A piece is looked up whole, among those met before and in the vocabulary; only
// what is in neither is merged from its bytes.
//
// An [Encoding] is immutable and shared by the whole process; each goroutine has its own [Encoder].
package tokenize

import (
	"fmt"

	"millrace/sources/tokenize/internal/split"
	"millrace/sources/tokenize/internal/vocab"
)

// Encoding is a vocabulary, its merge table and its pattern for splitting text. What it says never changes, and it
// is safe for concurrent use; a process needs each only once (5 to 25 MB of tables).
type Encoding struct {
	name        string
	splitter    *split.Splitter
	vocabulary  *vocab.Vocabulary
	pieces      *pieceTable
	merges      *mergeTable
	specials    map[uint32]string
	size        int
	eot         uint32
	fingerprint [16]byte
	lent        lender
}

// Name returns the name it was loaded by; for a file, the name of the known vocabulary that it holds, or else the file's
// own name without its ending.
func (e *Encoding) Name() string { return e.name }

// VocabSize returns the number of ids, special tokens included: every id is below it.
func (e *Encoding) VocabSize() int { return e.size }

// EOT returns the id of <|endoftext|>.
func (e *Encoding) EOT() uint32 { return e.eot }

// Fingerprint identifies what decides the ids of a text: BLAKE2b-128 over all ranks and the pattern's name. It does not
// depend on the encoding's name or on where it was loaded from.
func (e *Encoding) Fingerprint() [16]byte { return e.fingerprint }

// Decode appends the bytes that the ids spell to dst, special tokens by their names. An id that is no token is an error;
// dst then comes back with what the ids before it spell. Whole characters may be split between ids, so the bytes need
// not be valid UTF-8.
func (e *Encoding) Decode(dst []byte, ids []uint32) ([]byte, error) {
	for i, id := range ids {
		if int64(id) < int64(e.vocabulary.Len()) && len(e.vocabulary.Token(id)) > 0 {
			dst = append(dst, e.vocabulary.Token(id)...)
		} else if special, ok := e.specials[id]; ok {
			dst = append(dst, special...)
		} else {
			return dst, fmt.Errorf("decode with tokenizer %s: id %d at position %d is none of its %d", e.name, id, i, e.size)
		}
	}
	return dst, nil
}
