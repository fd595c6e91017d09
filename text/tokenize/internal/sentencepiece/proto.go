package sentencepiece

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// proto is the part of a ModelProto that decides about encoding. See sentencepiece_model.proto of SentencePiece.
type proto struct {
	pieces   []piece
	kind     uint64 // of the model
	suffix   bool   // a space belongs to the word before it
	bytes    bool   // characters without a piece are spelt by bytes
	bos, eos string

	charsmap          []byte
	prefixes, shrinks bool // add_dummy_prefix, remove_extra_whitespaces
	escapes           bool // a space is written as U+2581
}

// piece is a token of the model.
type piece struct {
	text  []byte
	score float32
	kind  uint64
}

// Kinds of pieces.
const (
	normal      = 1
	unknown     = 2
	control     = 3
	userDefined = 4
	unused      = 5
	byteOf      = 6
)

// Kinds of models.
const (
	unigramKind = 1
	bpeKind     = 2
	charKind    = 4
)

const (
	maxPieces = 1 << 21
	maxBytes  = 64 << 20 // of all pieces together
)

// parse reads a model. Its byte slices are parts of the file.
func parse(file []byte) (*proto, error) {
	p := &proto{kind: unigramKind, bos: "<s>", eos: "</s>", prefixes: true, shrinks: true, escapes: true}
	total := 0
	err := fields(file, func(number protowire.Number, f field) error {
		switch number {
		case 1:
			piece, err := parsePiece(f.bytes)
			if err != nil {
				return fmt.Errorf("piece %d: %w", len(p.pieces), err)
			}
			if total += len(piece.text); len(p.pieces) == maxPieces || total > maxBytes {
				return fmt.Errorf("it has more than %d pieces, or %d bytes in them", maxPieces, maxBytes)
			}
			p.pieces = append(p.pieces, piece)
		case 2:
			return fields(f.bytes, p.trainer)
		case 3:
			return fields(f.bytes, p.normalizer)
		}
		return nil
	})
	return p, err
}

func (p *proto) trainer(number protowire.Number, f field) error {
	switch number {
	case 3:
		p.kind = f.number
	case 24:
		p.suffix = f.number != 0
	case 35:
		p.bytes = f.number != 0
	case 46:
		p.bos = string(f.bytes)
	case 47:
		p.eos = string(f.bytes)
	}
	return nil
}

func (p *proto) normalizer(number protowire.Number, f field) error {
	switch number {
	case 2:
		p.charsmap = f.bytes
	case 3:
		p.prefixes = f.number != 0
	case 4:
		p.shrinks = f.number != 0
	case 5:
		p.escapes = f.number != 0
	}
	return nil
}

func parsePiece(message []byte) (piece, error) {
	p := piece{kind: normal}
	err := fields(message, func(number protowire.Number, f field) error {
		switch number {
		case 1:
			p.text = f.bytes
		case 2:
			p.score = math.Float32frombits(uint32(f.number))
		case 3:
			p.kind = f.number
		}
		return nil
	})
	return p, err
}

// field is the value of a field: bytes, or the bits of a number.
type field struct {
	bytes  []byte
	number uint64
}

var errCut = errors.New("a field of the file is cut off or not of this format")

// fields calls a function for each field of a message.
func fields(message []byte, do func(number protowire.Number, f field) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errCut
		}
		message = message[n:]
		var f field
		switch kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			f.number, n = protowire.ConsumeVarint(message)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(message)
			f.number = uint64(bits)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return errCut
		}
		message = message[n:]
		if err := do(number, f); err != nil {
			return err
		}
	}
	return nil
}
