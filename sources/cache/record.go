package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources"
)

// The kinds of records in an entry. A document's kind is the width of its ids in bytes.
const (
	kindBad    = 0
	kindNarrow = 2
	kindWide   = 4
)

// The kinds of values that filters read.
const (
	valueNone = iota
	valueText
	valueInt
	valueFloat
	valueTrue
	valueFalse
)

// errDamaged is the error of an entry whose bytes are not the written ones.
var errDamaged = errors.New("its bytes are not the written ones")

// checksum returns the hash of a record's bytes. It is valid for this record of this entry alone.
func checksum(salt, number uint64, b []byte) uint64 {
	return xxh3.HashSeed(b, salt^number*0x9E3779B97F4A7C15)
}

// appendRecord appends the bytes of a record. tokens is its document; a bad record has none.
func appendRecord(dst []byte, r *sources.Record, tokens []uint32) ([]byte, error) {
	kind := byte(kindNarrow)
	if r.Err != nil {
		kind = kindBad
	}
	for _, id := range tokens {
		if id > math.MaxUint16 {
			kind = kindWide
			break
		}
	}
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(r.Offset+1))
	dst = binary.AppendUvarint(dst, uint64(r.Raw))
	if kind == kindBad {
		return append(dst, r.Err.Error()...), nil
	}
	dst = binary.AppendUvarint(dst, uint64(r.TextBytes()))
	dst = binary.AppendUvarint(dst, uint64(len(r.Others)))
	for _, v := range r.Others {
		var err error
		if dst, err = appendValue(dst, v); err != nil {
			return nil, err
		}
	}
	for _, id := range tokens {
		if kind == kindNarrow {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
		} else {
			dst = binary.LittleEndian.AppendUint32(dst, id)
		}
	}
	return dst, nil
}

func appendValue(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, valueNone), nil
	case string:
		dst = binary.AppendUvarint(append(dst, valueText), uint64(len(v)))
		return append(dst, v...), nil
	case int:
		return binary.AppendVarint(append(dst, valueInt), int64(v)), nil
	case float64:
		return binary.LittleEndian.AppendUint64(append(dst, valueFloat), math.Float64bits(v)), nil
	case bool:
		if v {
			return append(dst, valueTrue), nil
		}
		return append(dst, valueFalse), nil
	}
	return nil, fmt.Errorf("keep a value of type %T: no entry holds such values", v)
}

// parser reads the bytes of a record. After the first mistake it returns zeros, and bad is set.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	return v * uint64(p.skip(n))
}

func (p *parser) varint() int64 {
	v, n := binary.Varint(p.b)
	return v * int64(p.skip(n))
}

// skip drops the bytes of a number and returns 1, or 0 if there was none.
func (p *parser) skip(n int) int {
	if n <= 0 || p.bad {
		p.b, p.bad = nil, true
		return 0
	}
	p.b = p.b[n:]
	return 1
}

func (p *parser) take(n uint64) []byte {
	if p.bad || n > uint64(len(p.b)) {
		p.b, p.bad = nil, true
		return nil
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

func (p *parser) value() any {
	kind := p.take(1)
	if kind == nil {
		return nil
	}
	switch kind[0] {
	case valueNone:
		return nil
	case valueText:
		return string(p.take(p.uvarint()))
	case valueInt:
		return int(p.varint())
	case valueFloat:
		if b := p.take(8); b != nil {
			return math.Float64frombits(binary.LittleEndian.Uint64(b))
		}
		return nil
	case valueTrue, valueFalse:
		return kind[0] == valueTrue
	}
	p.bad = true
	return nil
}

// decoded is the memory of one decoded record.
type decoded struct {
	tokens []uint32
	others []any
}

// record decodes the bytes of a record into memory that the next call uses again.
func (d *decoded) record(number uint64, b []byte) (sources.Record, error) {
	p := parser{b: b}
	kind := p.take(1)
	r := sources.Record{Number: number, Offset: int64(p.uvarint()) - 1, Raw: int64(p.uvarint())}
	switch {
	case p.bad:
		return r, errDamaged
	case kind[0] == kindBad:
		r.Err = millrace.Errorf(millrace.ErrBadSample, "%s", p.b)
		return r, nil
	case kind[0] != kindNarrow && kind[0] != kindWide:
		return r, errDamaged
	}
	r.Made, r.Text = true, nil
	r.MadeOf = int64(p.uvarint())
	others := p.uvarint()
	if others > uint64(len(p.b)) {
		return r, errDamaged
	}
	d.others = d.others[:0]
	for range others {
		d.others = append(d.others, p.value())
	}
	if p.bad || len(p.b)%int(kind[0]) != 0 {
		return r, errDamaged
	}
	if others > 0 {
		r.Others = d.others
	}
	d.tokens = appendTokens(d.tokens[:0], p.b, kind[0])
	r.Tokens = d.tokens
	return r, nil
}

// appendTokens decodes ids of a width.
func appendTokens(dst []uint32, b []byte, width byte) []uint32 {
	n := len(b) / int(width)
	at := len(dst)
	if cap(dst)-at < n {
		dst = append(make([]uint32, 0, at+n), dst...)
	}
	dst = dst[:at+n]
	out := dst[at:]
	if width == kindNarrow {
		for i := range out {
			out[i] = uint32(binary.LittleEndian.Uint16(b[2*i:]))
		}
		return dst
	}
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return dst
}
