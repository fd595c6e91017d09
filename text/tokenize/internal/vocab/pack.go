package vocab

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// The packed form, before compression: the number of ids (uint32), the 256 bytes of ids 0 to 255, then the pairs of all
// further ids as six planes: low, middle and high byte of the left parts, then of the right parts. Bytes and merge
// table follow from it.

const planes = 6

// Pack returns the vocabulary in the compressed form that Unpack reads. The vocabulary begins with the 256 single bytes
// and uses every id. A merge makes every other token.
func (v *Vocabulary) Pack() ([]byte, error) {
	count := v.Len()
	if count < 256 {
		return nil, fmt.Errorf("pack vocabulary: %d tokens, want the 256 single bytes first", count)
	}
	out := binary.LittleEndian.AppendUint32(nil, uint32(count))
	for id := range uint32(256) {
		if len(v.Token(id)) != 1 {
			return nil, fmt.Errorf("pack vocabulary: token %d is %q, want a single byte", id, v.Token(id))
		}
		out = append(out, v.Token(id)[0])
	}
	for plane := range planes {
		for id := uint32(256); id < uint32(count); id++ {
			left, right, ok := v.Pair(id)
			if !ok {
				return nil, fmt.Errorf("pack vocabulary: no merge makes token %d, %q", id, v.Token(id))
			}
			part := left
			if plane >= planes/2 {
				part = right
			}
			out = append(out, byte(part>>(8*(plane%(planes/2)))))
		}
	}
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("pack vocabulary: %w", err)
	}
	return packer.EncodeAll(out, nil), nil
}

// Unpack returns the vocabulary of bytes that Pack wrote.
func Unpack(packed []byte) (*Vocabulary, error) {
	reader, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, fmt.Errorf("unpack vocabulary: %w", err)
	}
	defer reader.Close()
	raw, err := reader.DecodeAll(packed, nil)
	if err != nil {
		return nil, fmt.Errorf("unpack vocabulary: %w", err)
	}
	if len(raw) < 4+256 {
		return nil, errors.New("unpack vocabulary: too short")
	}
	count := binary.LittleEndian.Uint32(raw)
	singles, pairs := raw[4:4+256], raw[4+256:]
	if count < 256 || count > MaxTokens || len(pairs) != planes*int(count-256) {
		return nil, fmt.Errorf("unpack vocabulary: %d bytes of pairs do not fit %d tokens", len(pairs), count)
	}
	v := &Vocabulary{ends: make([]uint32, 0, count), pairs: make([][2]uint32, count)}
	for id, b := range singles {
		v.spelling = append(v.spelling, b)
		v.ends = append(v.ends, uint32(len(v.spelling)))
		v.pairs[id] = [2]uint32{none, none}
		v.bytes[b] = uint32(id)
	}
	rows := int(count - 256)
	for row := range rows {
		id := uint32(256 + row)
		left := planed(pairs, rows, row)
		right := planed(pairs[planes/2*rows:], rows, row)
		if left >= id || right >= id {
			return nil, fmt.Errorf("unpack vocabulary: token %d is made of %d and %d, which come later",
				id, left, right)
		}
		v.spelling = append(v.spelling, v.Token(left)...)
		v.spelling = append(v.spelling, v.Token(right)...)
		v.ends = append(v.ends, uint32(len(v.spelling)))
		v.pairs[id] = [2]uint32{left, right}
	}
	return v, nil
}

// planed reads the three-byte number of a row.
func planed(pairs []byte, rows, row int) uint32 {
	return uint32(pairs[row]) | uint32(pairs[rows+row])<<8 | uint32(pairs[2*rows+row])<<16
}
