package tokenize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"millrace/text/tokenize/internal/hf"
	"millrace/text/tokenize/internal/normal"
	"millrace/text/tokenize/internal/pipeline"
	"millrace/text/tokenize/internal/vocab"
)

// openDirectory returns the encoding of a model's directory.
func (s *Spec) openDirectory() (*Encoding, error) {
	name, isOwn, err := hf.Find(s.Path)
	if err != nil {
		return nil, refused(err)
	}
	if isOwn {
		t, err := hf.ReadDirectory(s.Path)
		if err != nil {
			return nil, refused(err)
		}
		return s.openHF(t)
	}
	file := *s
	file.Path = filepath.Join(s.Path, name)
	if file.beside, err = hf.ReadBeside(file.Path); err != nil {
		return nil, refused(err)
	}
	e, err := file.openFile()
	var wrong *Error
	if errors.As(err, &wrong) && wrong.Key == "path" && !strings.HasPrefix(wrong.Reason, "tokenizer_config.json") {
		wrong.Reason = name + ": " + wrong.Reason
	}
	return e, err
}

// complete adds the special tokens, bos and eos that the files beside a tokenizer's file name.
func (s *Spec) complete(d *definition, size int, token func(id uint32) (text string, isSymbol bool)) error {
	if s.beside == nil {
		return nil
	}
	own := hf.Own{Specials: d.specials, BOS: d.bos, EOS: d.eos, Len: size, Token: token}
	if err := s.beside.Complete(&own, s.Specials); err != nil {
		return refused(err)
	}
	d.specials, d.bos, d.eos = own.Specials, own.BOS, own.EOS
	return s.checkEnds(own.Ends)
}

// checkEnds returns an error if an eos is needed and the files name several tokens for it.
func (s *Spec) checkEnds(ends string) error {
	if !s.NeedEOS || s.EOS != "" || ends == "" {
		return nil
	}
	return &Error{Key: "eos",
		Reason: "generation_config.json names several tokens that end a text (" + ends +
			"), and no other file names one",
		Cure: "write `eos:` with the one that ends a document"}
}

// fileName returns the name of an encoding of a file: that of the file without its ending, or that of its directory.
func (s *Spec) fileName() string {
	if s.beside != nil {
		return filepath.Base(filepath.Dir(s.Path))
	}
	return strings.TrimSuffix(filepath.Base(s.Path), filepath.Ext(s.Path))
}

// refused returns the error of a file that package hf did not read.
func refused(err error) error {
	var own *hf.Error
	if errors.As(err, &own) {
		return wrongFile(own.Reason, own.Cure)
	}
	return unopened(err)
}

// openHF returns the encoding of a tokenizer.json.
func (s *Spec) openHF(t *hf.Tokenizer) (*Encoding, error) {
	if s.Pattern != "" {
		return nil, &Error{Key: "pattern", Reason: "a tokenizer.json has its own pattern", Cure: "remove `pattern:`"}
	}
	if s.Specials != nil {
		if err := checkSpecials(s.Specials, "each is free or of a special token", t.Owner); err != nil {
			return nil, err
		}
		t.SetSpecials(s.Specials)
	}
	d := definition{name: s.fileName(), pattern: t.Pattern, stages: t.Stages, prefixed: t.Prefixed,
		before: t.Before, nfc: t.NFC, bos: t.BOS, eos: t.EOS}
	if err := d.add(t); err != nil {
		return nil, err
	}
	if err := s.checkEnds(t.Ends); err != nil {
		return nil, err
	}
	if err := s.marks(&d); err != nil {
		return nil, err
	}
	if t.Pipeline != nil {
		return d.openPipeline(t)
	}
	e, err := newEncoding(&d, t.Vocabulary)
	if err != nil {
		return nil, err
	}
	e.rewriters = t.Normalizers
	if t.NFC {
		e.normal = normal.C
	}
	e.added = hf.NewDivider(t.Added, e.withRewriters(byteLevel{&Encoder{encoding: e}}).normalise)
	e.fingerprint, err = fingerprintHF(e.fingerprint, t)
	return e, err
}

// add makes all added tokens tokens of the definition, so that bos and eos can be each of them.
func (d *definition) add(t *hf.Tokenizer) error {
	d.specials = make(map[string]uint32, len(t.Added))
	byID := make(map[uint32]string, len(t.Added))
	for i, a := range t.Added {
		wrong := func(what string, args ...any) error {
			return wrongFile(fmt.Sprintf("tokenizer.json: added_tokens[%d]: %q "+what,
				append([]any{i, a.Content}, args...)...), cureSave)
		}
		_, twice := d.specials[a.Content]
		first, taken := byID[a.ID]
		switch {
		case a.Content == "" || twice:
			return wrong("is empty or there twice")
		case taken:
			return wrong("has the id %d of %q", a.ID, first)
		case a.ID >= vocab.MaxTokens:
			return wrong("has the id %d, and the highest supported one is %d", a.ID, vocab.MaxTokens-1)
		}
		if token := t.Token(a.ID); len(token) > 0 && (t.Pipeline == nil || string(token) != a.Content) {
			return wrong("has the id of the model's token %q", token)
		}
		d.specials[a.Content], byID[a.ID] = a.ID, a.Content
	}
	if t.Pipeline == nil {
		return nil
	}
	for id, token := range t.Pipeline.Tokens {
		if added, ok := d.specials[string(token)]; ok && added != uint32(id) {
			return wrongFile(fmt.Sprintf("tokenizer.json: added_tokens: %q has the id %d, and model.vocab has it as %d",
				token, added, id), cureSave)
		}
	}
	return nil
}

// fingerprintHF adds to a fingerprint the further decisions of a tokenizer.json: which tokens merges make, and which
// added tokens count in a text.
func fingerprintHF(base [16]byte, t *hf.Tokenizer) (sum [16]byte, err error) {
	h, err := newDigest()
	if err != nil {
		return sum, err
	}
	h.text([]byte("tokenizer.json"))
	h.Write(base[:])
	var b []byte
	for id := range uint32(t.Vocabulary.Len()) {
		_, _, made := t.Vocabulary.Pair(id)
		b = append(b, flag(made)|flag(t.Vocabulary.IsWhole(id))<<1)
	}
	for _, a := range t.Added {
		b = binary.LittleEndian.AppendUint32(b, a.ID)
		b = append(b, flag(a.Special)|flag(a.Normalized)<<1|a.Sides()<<2)
	}
	h.text(b)
	if t.Normalizers != nil {
		h.text(t.Parts)
	}
	return h.sum(), nil
}

// appendAround appends the tokens of a text that may contain added tokens.
func (enc *Encoder) appendAround(dst []uint32, text []byte) []uint32 {
	set := &enc.encoding.added.Raw
	for pos := 0; ; {
		start, end, id, ok := set.Next(text, pos)
		if !ok {
			return enc.appendNormal(dst, enc.coder.normalise(text[pos:]), pos == 0)
		}
		dst = append(enc.appendNormal(dst, enc.coder.normalise(text[pos:start]), pos == 0), id)
		pos = end
	}
}

// appendNormal appends the tokens of a text in normal form.
func (enc *Encoder) appendNormal(dst []uint32, text []byte, first bool) []uint32 {
	set := &enc.encoding.added.Normal
	for pos := 0; ; {
		start, end, id, ok := set.Next(text, pos)
		if !ok {
			return enc.coder.append(dst, text[pos:], first && pos == 0)
		}
		dst = append(enc.coder.append(dst, text[pos:start], first && pos == 0), id)
		pos = end
	}
}

// openPipeline returns the encoding of a tokenizer.json whose model is not byte-level.
func (d *definition) openPipeline(t *hf.Tokenizer) (*Encoding, error) {
	h, err := newDigest()
	if err != nil {
		return nil, err
	}
	h.text([]byte("tokenizer.json: pipeline"))
	h.text(t.Parts)
	h.specials(d)
	var flags []byte
	for _, a := range t.Added {
		flags = binary.LittleEndian.AppendUint32(flags, a.ID)
		flags = append(flags, flag(a.Special)|flag(a.Normalized)<<1|a.Sides()<<2)
	}
	h.text(flags)
	m := general{t.Pipeline}
	none := &vocab.Vocabulary{}
	e := &Encoding{name: d.name, model: m, vocabulary: none, pieces: newPieceTable(none), size: m.Len(),
		fingerprint: h.sum(), lent: defaultLender()}
	e.setSpecials(d)
	e.added = hf.NewDivider(t.Added, func(text []byte) []byte { return m.Normalize(text, &pipeline.Scratch{}) })
	return e, nil
}

// general is the pipeline of a tokenizer.json.
type general struct{ *pipeline.Pipeline }

func (m general) newCoder(enc *Encoder) coder { return &generalCoder{Encoder: enc, m: m} }

// generalCoder encodes by the pipeline of a tokenizer.json.
type generalCoder struct {
	*Encoder
	m       general
	scratch pipeline.Scratch
}

func (c *generalCoder) remembers() bool { return true }

func (c *generalCoder) normalise(text []byte) []byte { return c.m.Normalize(text, &c.scratch) }

func (c *generalCoder) append(dst []uint32, text []byte, first bool) []uint32 {
	c.m.Split(text, first, &c.scratch, func(part []byte) {
		for pos := 0; pos < len(part); {
			n := c.m.Model.Pieces(part, pos, c.ends[:])
			dst = c.appendPieces(dst, part, pos, c.ends[:n])
			c.merger.stride.went(c.ends[n-1] - pos)
			pos = c.ends[n-1]
		}
	})
	return dst
}

func (c *generalCoder) merge(dst []uint32, piece []byte) []uint32 {
	return c.m.Model.Append(dst, piece, &c.scratch)
}
