package tokenize

import (
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/blake2b"

	"millrace/sources/tokenize/internal/split"
	"millrace/sources/tokenize/internal/vocab"
)

// The vocabularies are packed by vocabgen; each holds only bytes and merges.
//
//go:generate go run ./internal/vocabgen vocabularies
//go:embed vocabularies/*.vocab
var vocabularies embed.FS

// definition is what a vocabulary file does not say about an encoding.
type definition struct {
	name     string
	file     string // the embedded vocabulary
	pattern  split.Pattern
	eot      uint32
	specials map[uint32]string
	// fingerprint is what [Encoding.Fingerprint] returns, in hexadecimal: a file with these ranks is this encoding.
	fingerprint string
}

const endOfText = "<|endoftext|>"

// definitions are the embedded encodings. gpt2 is r50k_base under the name of its model.
func definitions() []definition {
	r50k := map[uint32]string{50256: endOfText}
	cl100k := map[uint32]string{
		100257: endOfText,
		100258: "<|fim_prefix|>", 100259: "<|fim_middle|>", 100260: "<|fim_suffix|>",
		100276: "<|endofprompt|>",
	}
	o200k := map[uint32]string{199999: endOfText, 200018: "<|endofprompt|>"}
	return []definition{
		{"gpt2", "r50k_base", split.R50k, 50256, r50k, "12e81e9cde16561db2988bc8ee189616"},
		{"r50k_base", "r50k_base", split.R50k, 50256, r50k, "12e81e9cde16561db2988bc8ee189616"},
		{"cl100k_base", "cl100k_base", split.Cl100k, 100257, cl100k, "d72c8a2757cea8eda96403b7d67a7fab"},
		{"o200k_base", "o200k_base", split.O200k, 199999, o200k, "39aa891d5436038f73639e28824cdde6"},
	}
}

// Load returns an embedded encoding: gpt2 (which is r50k_base), r50k_base, cl100k_base or o200k_base. It takes some
// ten milliseconds.
func Load(name string) (*Encoding, error) {
	var names []string
	for _, d := range definitions() {
		if d.name == name {
			e, err := unpack(d)
			if err != nil {
				return nil, fmt.Errorf("load tokenizer %s: %w", name, err)
			}
			return e, nil
		}
		names = append(names, d.name)
	}
	return nil, fmt.Errorf("load tokenizer: there is no %q; the names are %s, or give the path of a .tiktoken file",
		name, strings.Join(names, ", "))
}

func unpack(d definition) (*Encoding, error) {
	packed, err := vocabularies.ReadFile("vocabularies/" + d.file + ".vocab")
	if err != nil {
		return nil, err
	}
	v, err := vocab.Unpack(packed)
	if err != nil {
		return nil, err
	}
	return newEncoding(d, v)
}

// LoadFile returns the encoding of a .tiktoken file: on each line a token in base64, a space and its rank.
//
// Such a file does not name its pattern. Ranks equal to those of an embedded encoding are that encoding, special
// tokens included. Otherwise the pattern is the one whose name the file's name contains (r50k, cl100k or o200k, as in
// "ours-o200k.tiktoken"), by default cl100k's, and <|endoftext|> is the first id behind the ranks.
func LoadFile(path string) (*Encoding, error) {
	e, err := loadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return e, nil
}

func loadFile(path string) (*Encoding, error) {
	base := filepath.Base(path)
	switch filepath.Ext(base) {
	case ".json":
		return nil, errors.New("a tokenizer.json cannot be read yet; give a .tiktoken file or a known name")
	case ".model":
		return nil, errors.New("a SentencePiece model cannot be read yet; give a .tiktoken file or a known name")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	v, err := vocab.ReadTiktoken(file)
	if err != nil {
		return nil, err
	}
	for _, d := range definitions()[1:] { // r50k_base rather than gpt2
		sum, err := fingerprint(v, d.pattern)
		if err != nil {
			return nil, err
		}
		if hex.EncodeToString(sum[:]) == d.fingerprint {
			return newEncoding(d, v)
		}
	}
	d := definition{name: strings.TrimSuffix(base, filepath.Ext(base)), pattern: split.Cl100k, eot: uint32(v.Len())}
	d.specials = map[uint32]string{d.eot: endOfText}
	for _, p := range []split.Pattern{split.R50k, split.O200k} {
		if strings.Contains(d.name, p.String()) {
			d.pattern = p
		}
	}
	return newEncoding(d, v)
}

func newEncoding(d definition, v *vocab.Vocabulary) (*Encoding, error) {
	sum, err := fingerprint(v, d.pattern)
	if err != nil {
		return nil, err
	}
	e := &Encoding{
		name:        d.name,
		splitter:    split.New(d.pattern),
		vocabulary:  v,
		pieces:      newPieceTable(v),
		merges:      newMergeTable(v),
		specials:    d.specials,
		size:        v.Len(),
		eot:         d.eot,
		fingerprint: sum,
	}
	for id := range d.specials {
		e.size = max(e.size, int(id)+1)
	}
	return e, nil
}

// fingerprint is BLAKE2b-128 over the length and the bytes of every rank's token, and the pattern's name.
func fingerprint(v *vocab.Vocabulary, p split.Pattern) (sum [16]byte, err error) {
	hash, err := blake2b.New(len(sum), nil)
	if err != nil {
		return sum, fmt.Errorf("fingerprint vocabulary: %w", err)
	}
	var buf []byte
	for id := range uint32(v.Len()) {
		token := v.Token(id)
		buf = binary.AppendUvarint(buf[:0], uint64(len(token)))
		buf = append(buf, token...)
		hash.Write(buf)
	}
	hash.Write([]byte(p.String()))
	return [16]byte(hash.Sum(nil)), nil
}
