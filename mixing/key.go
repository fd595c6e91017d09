package mixing

import (
	"encoding/binary"

	"golang.org/x/crypto/blake2b"
)

// Key selects one permutation of a family. Keys come from DeriveKey.
type Key [16]byte

// Part is one component of a derived key: Text or Number.
type Part struct {
	text   string
	number uint64
	isText bool
}

// Text makes a key part of a name, such as a source or a purpose.
func Text(s string) Part { return Part{text: s, isText: true} }

// Number makes a key part of a count, such as an epoch or a block.
func Number(n uint64) Part { return Part{number: n} }

const (
	keyDomain   = "millrace mixing key 1"
	tagText     = 't'
	tagNumber   = 'n'
	goldenRatio = 0x9e3779b97f4a7c15 // 2^64 / golden ratio, odd
)

// DeriveKey derives a key from a run's seed and the purpose of the key.
//
// The preimage is the domain string, the seed, and the parts. A part is a tag and either the number, or the length and
// bytes of the text. All integers are little-endian u64. Different lists of parts have different preimages. No key is
// the sum of a seed and an epoch, so streams of nearby seeds or epochs are unrelated.
func DeriveKey(seed uint64, parts ...Part) Key {
	preimage := append(make([]byte, 0, 128), keyDomain...)
	preimage = binary.LittleEndian.AppendUint64(preimage, seed)
	for _, p := range parts {
		if p.isText {
			preimage = append(preimage, tagText)
			preimage = binary.LittleEndian.AppendUint64(preimage, uint64(len(p.text)))
			preimage = append(preimage, p.text...)
			continue
		}
		preimage = append(preimage, tagNumber)
		preimage = binary.LittleEndian.AppendUint64(preimage, p.number)
	}
	sum := blake2b.Sum256(preimage)
	var key Key
	copy(key[:], sum[:])
	return key
}

// expand fills words from the key: a SplitMix64 sequence (Steele, Lea and Flood 2014) of the first half, each output
// mixed again with the second half.
func (k Key) expand(words []uint64) {
	first, second := binary.LittleEndian.Uint64(k[:8]), binary.LittleEndian.Uint64(k[8:])
	for i := range words {
		first += goldenRatio
		words[i] = splitMix(splitMix(first) ^ second)
	}
}

// splitMix is SplitMix64's output function, a bijection of 64-bit words.
func splitMix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
