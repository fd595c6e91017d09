package sources

import (
	"encoding/binary"

	"golang.org/x/crypto/blake2b"

	"millrace"
)

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

// transform is how a record becomes a document: [bos] + encoding + [eos] for text, the tokens as they are for formats
// of tokens.
type transform struct {
	tokenizer Tokenizer // nil for formats of tokens
	bos, eos  []uint32  // one token, or none
}

func newTransform(t Tokenizer, bos, eos bool) transform {
	if t == nil {
		return transform{}
	}
	x := transform{tokenizer: t}
	if id, ok := t.BOS(); ok && bos {
		x.bos = []uint32{id}
	}
	if id, ok := t.EOS(); ok && eos {
		x.eos = []uint32{id}
	}
	return x
}

// fingerprint identifies what decides the tokens of a shard's records apart from its bytes: the length store's key.
func (s Spec) fingerprint() millrace.Digest {
	var encoding [16]byte
	if s.Tokenizer != nil {
		encoding = s.Tokenizer.Fingerprint()
	}
	in := append([]byte("millrace transform 1"), encoding[:]...)
	in = append(in, flag(s.AddBOS), flag(s.AddEOS))
	in = appendText(in, s.Format.Name())
	in = appendText(in, s.Field.Text)
	return digest128(in)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, uint64(len(s))), s...)
}

func digest128(in []byte) (d millrace.Digest) {
	h, err := blake2b.New(len(d), nil)
	if err != nil {
		return d // only a size or key out of range is an error
	}
	h.Write(in)
	h.Sum(d[:0])
	return d
}

// document appends a record's tokens to dst; tell is told of every MiB of its text.
func (t *transform) document(dst []uint32, r *Record, tell func()) ([]uint32, error) {
	if t.tokenizer == nil {
		return append(dst, r.Tokens...), nil
	}
	if r.Tokens != nil {
		return dst, millrace.Errorf(millrace.ErrBadSample, "tokenize record %d: it has tokens, not text", r.Number)
	}
	dst = append(dst, t.bos...)
	dst = t.tokenizer.Append(dst, r.Text, tell)
	return append(dst, t.eos...), nil
}
