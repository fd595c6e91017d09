package sentencepiece

import (
	"encoding/binary"
	"io"
	"math"
	"strconv"

	"millrace/text/tokenize/internal/unigram"
)

// IsDivided reports whether a text divides into pieces that [Merger.Append] encodes one by one. It is false for
// Unigram, whose pieces depend on the whole text before them, by the rounding of scores.
func (m *Model) IsDivided() bool { return m.bpe != nil }

// AppendWhole appends the ids of a normalised text, with a Unigram model.
func (m *Model) AppendWhole(dst []uint32, text []byte, s *unigram.Scratch) []uint32 {
	return m.unigram.Append(dst, text, nil, s)
}

// Fuse makes one token of each run of unknown ones in ids, as a text has it.
func (m *Model) Fuse(ids []uint32) []uint32 {
	if m.bytes != nil {
		return ids
	}
	n := 0
	for i, id := range ids {
		if i > 0 && id == m.unk && ids[i-1] == m.unk {
			continue
		}
		ids[n] = id
		n++
	}
	return ids[:n]
}

// Kind returns the kind of the model.
func (m *Model) Kind() string {
	switch m.proto.kind {
	case bpeKind:
		return "SentencePiece BPE"
	case charKind:
		return "SentencePiece characters"
	}
	return "SentencePiece Unigram"
}

// unigramRules names the rules by which equal and large sums of scores are decided. Other rules need another name:
// stored lengths of documents hold for the rules that made them.
const unigramRules = "float32 sums that begin anew"

// Describe writes everything to w that decides about ids.
func (m *Model) Describe(w io.Writer) {
	p := m.proto
	b := binary.AppendUvarint(nil, p.kind)
	if p.kind == unigramKind {
		b = append(b, unigramRules...)
	}
	for _, is := range []bool{p.suffix, p.bytes, p.prefixes, p.shrinks, p.escapes} {
		b = strconv.AppendBool(b, is)
	}
	b = append(binary.AppendUvarint(b, uint64(len(p.charsmap))), p.charsmap...)
	for _, piece := range p.pieces {
		b = append(binary.AppendUvarint(b, uint64(len(piece.text))), piece.text...)
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(piece.score))
		b = binary.AppendUvarint(b, piece.kind)
	}
	_, _ = w.Write(b) // a hash returns no error
}
