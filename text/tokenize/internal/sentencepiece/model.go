// Package sentencepiece encodes texts with the models of SentencePiece: BPE, Unigram and characters.
//
// A text is normalised first: by the model's rules for characters, and by its rules for spaces. Then the model divides
// it. The reference is SentencePiece 0.2: normalizer.cc, bpe_model.cc, unigram_model.cc and model_interface.cc.
package sentencepiece

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"millrace/text/tokenize/internal/charsmap"
	"millrace/text/tokenize/internal/trie"
	"millrace/text/tokenize/internal/unigram"
)

// Model is a vocabulary with its rules. It never changes and is safe for concurrent use.
type Model struct {
	proto   *proto
	rules   *charsmap.Map // nil: none
	user    *trie.Trie    // the symbols that stay whole; nil: none
	plain   [utf8.RuneSelf]bool
	unk     uint32
	bytes   *[256]uint32 // ids of all bytes; nil: characters without a piece are unk
	unigram *unigram.Model
	bpe     *bpe // nil for Unigram
}

// Parse returns the model of a file. It keeps the file's bytes.
func Parse(file []byte) (*Model, error) {
	p, err := parse(file)
	if err != nil {
		return nil, err
	}
	return p.build()
}

func (p *proto) build() (m *Model, err error) {
	m = &Model{proto: p}
	if err := m.index(); err != nil {
		return nil, err
	}
	if len(p.charsmap) > 0 {
		if m.rules, err = charsmap.Parse(p.charsmap); err != nil {
			return nil, fmt.Errorf("read its rules for characters: %w", err)
		}
	}
	m.findPlain()
	switch p.kind {
	case unigramKind:
		m.unigram, err = m.newUnigram()
	case bpeKind, charKind:
		m.bpe = newBPE(m)
	default:
		return nil, fmt.Errorf("it is a model of the kind %d; Unigram (1), BPE (2) and characters (4) are read", p.kind)
	}
	return m, err
}

// index checks the pieces and finds those with a special meaning.
func (m *Model) index() error {
	var byteIDs [256]uint32
	spelt, hasUnk, hasUser := 0, false, false
	inText, reserved := map[string]bool{}, map[string]bool{}
	for id, p := range m.proto.pieces {
		known := reserved
		if isInText(p) {
			known = inText
		}
		switch {
		case len(p.text) == 0 || !utf8.Valid(p.text) || bytes.IndexByte(p.text, 0) >= 0:
			return fmt.Errorf("piece %d, %q, is empty, not UTF-8, or has a NUL", id, p.text)
		case known[string(p.text)]:
			return fmt.Errorf("piece %d, %q, occurs twice", id, p.text)
		case math.IsNaN(float64(p.score)) || m.proto.kind == unigramKind && math.IsInf(float64(p.score), 0):
			return fmt.Errorf("the score of piece %d, %q, is not a number, or infinite", id, p.text)
		case p.kind == unknown && hasUnk:
			return fmt.Errorf("piece %d, %q, is a second unknown piece", id, p.text)
		}
		known[string(p.text)] = true
		switch p.kind {
		case unknown:
			m.unk, hasUnk = uint32(id), true
		case userDefined:
			hasUser = true
		case byteOf:
			b, ok := byteValue(p.text)
			if !ok || !m.proto.bytes {
				return fmt.Errorf("piece %d, %q, stands for no byte", id, p.text)
			}
			byteIDs[b] = uint32(id)
			spelt++
		}
	}
	if !hasUnk {
		return errors.New("it has no unknown piece")
	}
	if m.proto.bytes {
		if spelt != len(byteIDs) {
			return fmt.Errorf("it spells characters by bytes but has %d of 256 byte pieces", spelt)
		}
		m.bytes = &byteIDs
	}
	if hasUser {
		m.user = trie.New(m.texts(), func(id int) bool { return m.proto.pieces[id].kind == userDefined })
	}
	return nil
}

// isInText reports whether a text may contain the piece.
func isInText(p piece) bool { return p.kind == normal || p.kind == userDefined || p.kind == unused }

func byteValue(text []byte) (b byte, ok bool) {
	n, err := fmt.Sscanf(string(text), "<0x%02X>", &b)
	return b, n == 1 && err == nil && fmt.Sprintf("<0x%02X>", b) == string(text)
}

func (m *Model) texts() [][]byte {
	texts := make([][]byte, len(m.proto.pieces))
	for id, p := range m.proto.pieces {
		texts[id] = p.text
	}
	return texts
}

// unkPenalty is the distance of a character without a piece from the least score.
const unkPenalty = 10

func (m *Model) newUnigram() (*unigram.Model, error) {
	least := float32(math.MaxFloat32)
	for _, p := range m.proto.pieces {
		if p.kind == normal {
			least = min(least, p.score)
		}
	}
	scores := make([]float64, len(m.proto.pieces))
	for id, p := range m.proto.pieces {
		scores[id] = float64(p.score)
		if p.kind == userDefined { // a bonus, so that it is always chosen
			scores[id] = 0.1 * float64(len(p.text)-1)
		}
	}
	return unigram.New(unigram.Config{
		Pieces: m.texts(), Scores: scores, Single: true,
		Keep: func(id int) bool { p := m.proto.pieces[id]; return p.kind == normal || p.kind == userDefined },
		Unk:  m.unk, HasUnk: true, UnkScore: float64(float32(least - unkPenalty)), Bytes: m.bytes,
	})
}

// Len returns the number of ids.
func (m *Model) Len() int { return len(m.proto.pieces) }

// Token appends the text that an id stands for: with spaces, and a byte for the piece of a byte.
func (m *Model) Token(dst []byte, id uint32) []byte {
	p := m.proto.pieces[id]
	if p.kind == byteOf {
		b, _ := byteValue(p.text)
		return append(dst, b)
	}
	if isInText(p) && m.proto.escapes {
		return append(dst, bytes.ReplaceAll(p.text, []byte(space), []byte(" "))...)
	}
	return append(dst, p.text...)
}

// WithSpecials returns a model in which the pieces of some ids have these names and are control pieces, so that no text
// contains them. It leaves out ids behind the pieces. An unknown piece stays one under its new name.
func (m *Model) WithSpecials(names map[uint32]string) (*Model, error) {
	p := *m.proto
	p.pieces = slices.Clone(p.pieces)
	for id, name := range names {
		if int64(id) >= int64(len(p.pieces)) {
			continue
		}
		piece := &p.pieces[id]
		if piece.text = []byte(name); piece.kind != unknown {
			piece.kind = control
		}
	}
	return p.build()
}

// CanBeSpecial reports whether a piece may become a control piece without a change to texts that do not have its text.
func (m *Model) CanBeSpecial(id uint32) bool {
	kind := m.proto.pieces[id].kind
	return kind == control || kind == unknown || kind == userDefined
}

// IsPrefixed reports whether the model writes a space before each text.
func (m *Model) IsPrefixed() bool { return m.proto.prefixes }

// Piece returns the text of a piece as the model writes it.
func (m *Model) Piece(id uint32) string { return string(m.proto.pieces[id].text) }

// Specials returns the control pieces, which no text contains, with their ids.
func (m *Model) Specials() map[string]uint32 {
	specials := map[string]uint32{}
	for id, p := range m.proto.pieces {
		if p.kind == control {
			specials[string(p.text)] = uint32(id)
		}
	}
	return specials
}

// Marks returns the names of the control pieces that begin and end a text; a name is empty if there is none.
func (m *Model) Marks() (bos, eos string) {
	has := func(name string) string {
		is := func(p piece) bool { return p.kind == control && string(p.text) == name }
		if slices.ContainsFunc(m.proto.pieces, is) {
			return name
		}
		return ""
	}
	return has(m.proto.bos), has(m.proto.eos)
}
