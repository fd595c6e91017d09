package tokenize

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"slices"

	"golang.org/x/crypto/blake2b"

	"millrace/text/tokenize/internal/vocab"
)

// digest is the hash that names vocabularies and encodings: BLAKE2b-128.
type digest struct{ hash.Hash }

func newDigest() (digest, error) {
	h, err := blake2b.New(16, nil)
	if err != nil {
		return digest{}, fmt.Errorf("digest vocabulary: %w", err)
	}
	return digest{h}, nil
}

func (d digest) sum() [16]byte { return [16]byte(d.Sum(nil)) }

// text adds a text behind its length.
func (d digest) text(b []byte) {
	d.Write(append(binary.AppendUvarint(nil, uint64(len(b))), b...))
}

// ranks adds the length and the bytes of every rank's token.
func (d digest) ranks(v *vocab.Vocabulary) {
	var buf []byte
	for id := range uint32(v.Len()) {
		token := v.Token(id)
		buf = binary.AppendUvarint(buf[:0], uint64(len(token)))
		buf = append(buf, token...)
		d.Write(buf)
	}
}

// digestRanks returns the name of a vocabulary. Only its ranks decide it: the order of lines in its file and their ends
// do not matter.
func digestRanks(v *vocab.Vocabulary) (string, error) {
	d, err := newDigest()
	if err != nil {
		return "", err
	}
	d.ranks(v)
	sum := d.sum()
	return hex.EncodeToString(sum[:]), nil
}

// digest identifies everything that decides the ids of a document. For unchanged encodings of the first releases
// it covers the ranks and the pattern's name, because saved states have these fingerprints. For all others it also
// covers the special tokens.
func (d *definition) digest(v *vocab.Vocabulary) (sum [16]byte, err error) {
	h, err := newDigest()
	if err != nil {
		return sum, err
	}
	h.ranks(v)
	if d.stages != nil {
		h.text([]byte("stages: " + d.stages.String()))
	} else {
		h.Write([]byte(d.pattern.String()))
	}
	if d.prefixed {
		h.text([]byte("prefixed: " + d.before.String()))
	}
	if d.fingerprint != "" {
		return h.sum(), nil
	}
	h.Write([]byte{flag(d.nfc)})
	h.specials(d)
	return h.sum(), nil
}

// specials adds the special tokens of a definition, with bos and eos.
func (h digest) specials(d *definition) {
	h.text([]byte(d.bos))
	h.text([]byte(d.eos))
	byID := func(a, b string) int { return cmp.Compare(d.specials[a], d.specials[b]) }
	for _, text := range slices.SortedFunc(maps.Keys(d.specials), byID) {
		h.text([]byte(text))
		h.Write(binary.LittleEndian.AppendUint32(nil, d.specials[text]))
	}
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
