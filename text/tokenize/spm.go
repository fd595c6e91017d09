package tokenize

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"

	"millrace/text/tokenize/internal/sentencepiece"
	"millrace/text/tokenize/internal/unigram"
	"millrace/text/tokenize/internal/vocab"
)

// maxModel bounds the size of a SentencePiece model. The largest public ones have some 20 MB.
const maxModel = 128 << 20

// readSentencePiece returns the model of a file, or nil if the file is of another kind or cannot be opened.
func readSentencePiece(path string) (*sentencepiece.Model, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, sniffed)
	if head, _ := in.Peek(sniffed); !isSentencePiece(head) {
		return nil, nil
	}
	content, err := io.ReadAll(io.LimitReader(in, maxModel+1))
	if err != nil {
		return nil, unopened(err)
	}
	const cure = "restore the file from its publisher"
	if len(content) > maxModel {
		return nil, wrongFile(fmt.Sprintf("the SentencePiece model has more than %d MiB", maxModel>>20), cure)
	}
	m, err := sentencepiece.Parse(content)
	if err != nil {
		return nil, wrongFile("read the SentencePiece model: "+err.Error(), cure)
	}
	return m, nil
}

// openSentencePiece returns the encoding of a SentencePiece model.
func (s *Spec) openSentencePiece(m *sentencepiece.Model) (*Encoding, error) {
	if s.Pattern != "" {
		return nil, &Error{Key: "pattern", Reason: "a SentencePiece model divides text by its own rules",
			Cure: "remove `pattern:`"}
	}
	d := definition{name: s.fileName(), specials: m.Specials()}
	d.bos, d.eos = m.Marks()
	m, err := s.completeSentencePiece(&d, m)
	if err != nil {
		return nil, err
	}
	if s.Specials != nil {
		if err := checkControls(s.Specials, m); err != nil {
			return nil, err
		}
		d.dropAbsent(s.Specials)
	}
	if err := s.marks(&d); err != nil {
		return nil, err
	}
	h, err := newDigest()
	if err != nil {
		return nil, err
	}
	h.text([]byte("sentencepiece"))
	m.Describe(h)
	h.specials(&d)
	none := &vocab.Vocabulary{}
	e := &Encoding{name: d.name, model: spm{m}, vocabulary: none, pieces: newPieceTable(none), size: m.Len(),
		fingerprint: h.sum(), lent: defaultLender()}
	e.setSpecials(&d)
	return e, nil
}

// completeSentencePiece completes the special tokens of a model in a model's directory. It returns the model in which
// they stay text.
func (s *Spec) completeSentencePiece(d *definition, m *sentencepiece.Model) (*sentencepiece.Model, error) {
	if s.beside == nil {
		return m, nil
	}
	if err := cmp.Or(s.beside.CheckClass(), s.beside.CheckPrefix(m.IsPrefixed())); err != nil {
		return nil, refused(err)
	}
	err := s.complete(d, m.Len(), func(id uint32) (string, bool) {
		if int64(id) >= int64(m.Len()) {
			return "", false
		}
		return m.Piece(id), m.CanBeSpecial(id)
	})
	if err != nil {
		return nil, err
	}
	names := make(map[uint32]string, len(d.specials))
	for text, id := range d.specials {
		names[id] = text
	}
	if m, err = m.WithSpecials(names); err != nil {
		return nil, wrongFile(err.Error(), "write the path of the model itself, with `specials:`")
	}
	return m, nil
}

// dropAbsent replaces the special tokens. A bos or eos that is none of them any more is dropped.
func (d *definition) dropAbsent(specials map[string]uint32) {
	d.specials = specials
	if _, ok := specials[d.bos]; !ok {
		d.bos = ""
	}
	if _, ok := specials[d.eos]; !ok {
		d.eos = ""
	}
}

// checkControls refuses ids of other pieces, and ids that two tokens share.
func checkControls(specials map[string]uint32, m *sentencepiece.Model) error {
	return checkIDs(specials, func(text string, id uint32) error {
		if id < uint32(m.Len()) && m.Piece(id) != text {
			return wrongSpecial("write the id of this piece, or one behind the pieces",
				"the id of %q is %d, which is the piece %q of the model", text, id, m.Piece(id))
		}
		return nil
	})
}

// spm is a SentencePiece model.
type spm struct{ *sentencepiece.Model }

func (m spm) newCoder(enc *Encoder) coder { return &spmCoder{Encoder: enc, model: m.Model} }

// spmCoder encodes by a SentencePiece model.
type spmCoder struct {
	*Encoder
	model   *sentencepiece.Model
	merger  sentencepiece.Merger
	unigram unigram.Scratch
}

func (c *spmCoder) remembers() bool { return c.model.IsDivided() }

func (c *spmCoder) normalise(text []byte) []byte {
	normal := c.model.Normalize(c.normal[:0], text)
	if cap(normal) <= normalMax {
		c.normal = normal
	}
	return normal
}

func (c *spmCoder) append(dst []uint32, normal []byte, _ bool) []uint32 {
	if !c.model.IsDivided() {
		dst = c.model.AppendWhole(dst, normal, &c.unigram)
		c.Encoder.merger.stride.went(len(normal))
		return dst
	}
	start := len(dst)
	for pos := 0; pos < len(normal); {
		n := c.model.Pieces(normal, pos, c.ends[:])
		dst = c.appendPieces(dst, normal, pos, c.ends[:n])
		c.Encoder.merger.stride.went(c.ends[n-1] - pos)
		pos = c.ends[n-1]
	}
	return dst[:start+len(c.model.Fuse(dst[start:]))]
}

func (c *spmCoder) merge(dst []uint32, piece []byte) []uint32 {
	return c.merger.Append(dst, c.model, piece)
}
