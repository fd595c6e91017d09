package sources

import "millrace"

// Tokenizer turns text into tokens. It is safe for concurrent use.
type Tokenizer interface {
	// Append appends the tokens of a text to dst. tell is called after every MiB of text.
	Append(dst []uint32, text []byte, tell func()) []uint32
	// BOS returns the token that begins a document, if there is one.
	BOS() (id uint32, ok bool)
	// EOS returns the token that ends a document, if there is one.
	EOS() (id uint32, ok bool)
	// Fingerprint identifies the tokenizer: equal fingerprints give equal tokens.
	Fingerprint() [16]byte
}

// Maker makes the documents of a source's records. It is immutable and safe for concurrent use.
type Maker interface {
	// Fields returns the paths of the values that it needs beside the text.
	Fields() []string
	// Settings returns a text that identifies everything but the tokenizer that decides its documents.
	Settings() string
	// MakerTraits returns what the maker declares beside its documents.
	MakerTraits() MakerTraits
	// Document appends the tokens of a record's document to dst. values are those of Fields, in order. bytes is the
	// length of the text of which the document was made, 0 if there is none. tell is called after every MiB of text.
	// A record without a field that the document needs is a *MissingError. Every error wraps millrace.ErrBadSample.
	Document(dst []uint32, r *Record, values []any, tell func()) (tokens []uint32, bytes int64, err error)
}

// MakerTraits are what a maker declares beside its documents. The zero MakerTraits are those of a maker whose tokens
// are all trained on, and whose records have all of its fields.
type MakerTraits struct {
	// Revision tells the documents from those that an earlier release made of the same records with the same settings.
	// Lengths that the earlier release kept are then made anew. Settings do not change: saved states have them.
	Revision string
	MayLack  []string // the fields of Maker.Fields that a record may lack
	// LimitsLength: documents have a limit of length. Those beyond it are counted (Record.TooLong).
	LimitsLength bool
	// Untrained returns why a document of a record has no label. Such a record is bad. If it returns nil, the record is
	// a document like any other. values and r are those of Maker.Document. nil: no document has tokens that are not
	// trained on (tokenid.Untrained).
	Untrained func(r *Record, values []any) error
}

// Encoder turns whole texts into documents: [bos] + encoding + [eos]. It is safe for concurrent use.
type Encoder struct {
	tokenizer Tokenizer
	bos, eos  []uint32 // one token, or none
}

// NewEncoder returns the encoder of a source's texts. It puts bos before and eos behind each document, if asked to and
// if the tokenizer has them.
func NewEncoder(t Tokenizer, bos, eos bool) *Encoder {
	x := &Encoder{tokenizer: t}
	if id, ok := t.BOS(); ok && bos {
		x.bos = []uint32{id}
	}
	if id, ok := t.EOS(); ok && eos {
		x.eos = []uint32{id}
	}
	return x
}

// Append appends the document of a text to dst. tell is called after every MiB of text.
func (x *Encoder) Append(dst []uint32, text []byte, tell func()) []uint32 {
	dst = append(dst, x.bos...)
	dst = x.tokenizer.Append(dst, text, tell)
	return append(dst, x.eos...)
}

// plainText makes documents of Record.Text.
type plainText struct {
	*Encoder
	field     string
	skipEmpty bool
}

// Fields implements Maker.
func (*plainText) Fields() []string { return nil }

// Settings implements Maker.
func (*plainText) Settings() string { return "" }

// MakerTraits implements Maker.
func (*plainText) MakerTraits() MakerTraits { return MakerTraits{} }

// Document implements Maker.
func (p *plainText) Document(dst []uint32, r *Record, _ []any, tell func()) ([]uint32, int64, error) {
	if r.Tokens != nil {
		return dst, 0, millrace.Errorf(millrace.ErrBadSample, "tokenize record %d: it has tokens, not text", r.Number)
	}
	if len(r.Text) == 0 && p.skipEmpty {
		return dst, 0, NewMissingError(p.field, Empty, nil)
	}
	return p.Append(dst, r.Text, tell), int64(len(r.Text)), nil
}
