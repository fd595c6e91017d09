package cache

import (
	"encoding/binary"
	"fmt"
	"math"

	"millrace/sources/values"
)

// The kinds of values of a record.
const (
	valueNone = iota
	valueText
	valueInt
	valueFloat
	valueTrue
	valueFalse
	valueBinary
	valueIDs
	valueList
	valueObject
	valueNumber
)

// mostDepth is the deepest nesting of values that is read.
const mostDepth = 512

// appendValues appends a record's values and their number.
func appendValues(dst []byte, values []any) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	for _, v := range values {
		var err error
		if dst, err = appendValue(dst, v); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendText appends a text and its length.
func appendText[T string | []byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

func appendValue(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, valueNone), nil
	case string:
		return appendText(append(dst, valueText), v), nil
	case []byte:
		return appendText(append(dst, valueBinary), v), nil
	case int:
		return binary.AppendVarint(append(dst, valueInt), int64(v)), nil
	case float64:
		return binary.LittleEndian.AppendUint64(append(dst, valueFloat), math.Float64bits(v)), nil
	case bool:
		if v {
			return append(dst, valueTrue), nil
		}
		return append(dst, valueFalse), nil
	case []uint32:
		dst = binary.AppendUvarint(append(dst, valueIDs), uint64(len(v)))
		for _, id := range v {
			dst = binary.LittleEndian.AppendUint32(dst, id)
		}
		return dst, nil
	case []any:
		return appendValues(append(dst, valueList), v)
	case values.Number:
		return appendText(append(dst, valueNumber), string(v)), nil
	case values.Object:
		dst = binary.AppendUvarint(append(dst, valueObject), uint64(len(v.Keys)))
		for i, key := range v.Keys {
			var err error
			if dst, err = appendValue(appendText(dst, key), v.Values[i]); err != nil {
				return nil, err
			}
		}
		return dst, nil
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

// count reads the number of elements that follow, each of at least one byte.
func (p *parser) count() int {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.b, p.bad = nil, true
		return 0
	}
	return int(n)
}

// text reads a text and its length.
func (p *parser) text() string { return string(p.take(p.uvarint())) }

// value reads one value. depth is the number of values around it.
func (p *parser) value(depth int) any {
	kind := p.take(1)
	if kind == nil || depth > mostDepth {
		p.b, p.bad = nil, true
		return nil
	}
	switch kind[0] {
	case valueNone:
		return nil
	case valueText:
		return p.text()
	case valueBinary:
		return append([]byte{}, p.take(p.uvarint())...)
	case valueInt:
		return int(p.varint())
	case valueFloat:
		if b := p.take(8); b != nil {
			return math.Float64frombits(binary.LittleEndian.Uint64(b))
		}
		return nil
	case valueTrue, valueFalse:
		return kind[0] == valueTrue
	case valueIDs:
		return appendTokens([]uint32{}, p.take(4*uint64(p.count())), 4)
	case valueList:
		out := make([]any, p.count())
		for i := range out {
			out[i] = p.value(depth + 1)
		}
		return out
	case valueObject:
		var out values.Object
		for range p.count() {
			key := p.text()
			out.Add(key, p.value(depth+1))
		}
		return out
	case valueNumber:
		return values.Number(p.text())
	}
	p.bad = true
	return nil
}

// appendTokens decodes ids of a width in bytes.
func appendTokens(dst []uint32, b []byte, width byte) []uint32 {
	n := len(b) / int(width)
	at := len(dst)
	if cap(dst)-at < n {
		dst = append(make([]uint32, 0, at+n), dst...)
	}
	dst = dst[:at+n]
	out := dst[at:]
	if width == 2 {
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
