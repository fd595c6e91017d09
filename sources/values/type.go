package values

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"

	"millrace/sources/format/parts/valid"
)

// Kind is the meaning that a logical type gives to stored bytes.
type Kind uint8

// The kinds. Integers are little-endian, of 1, 2, 4 or 8 bytes.
const (
	Untyped   Kind = iota // bytes without a type: a text if they are UTF-8, else bytes
	Text                  // UTF-8
	Binary                // bytes
	Null                  // no value
	Bool                  // 0 is false
	Signed                // integer
	Whole                 // unsigned integer
	Float                 // IEEE 754, of 2, 4 or 8 bytes
	Decimal               // integer in two's complement of any width, times 10^-Scale
	Date                  // signed integer, days since 1970; in milliseconds with the unit Millis
	Time                  // signed integer, units since midnight
	Timestamp             // signed integer, units since 1970
	Impala                // a timestamp of 96 bits: nanoseconds of the day, and the Julian day
	Duration              // signed integer, units
	UUID                  // 16 bytes
	JSON                  // a JSON text
)

// Type is a logical type. The zero Type is that of bytes without one.
type Type struct {
	Kind     Kind
	Unit     Unit // of Time, Timestamp and Duration
	IsMoment bool // of a Timestamp: it is in UTC, not local
	Scale    int  // of a Decimal
	IsBig    bool // the integer of a Decimal is big-endian
}

// Of returns the value of stored bytes in memory of its own; nil is null. The error wraps millrace.ErrBadSample.
func (t Type) Of(b []byte) (any, error) {
	if b == nil {
		return nil, nil
	}
	switch t.Kind {
	case Untyped, Text:
		return t.text(b)
	case Binary:
		return append([]byte{}, b...), nil
	case Null:
		return nil, nil
	case JSON:
		v, err := FromJSON(b)
		if err != nil {
			return nil, bad("its JSON is damaged: %v", err)
		}
		return v, nil
	case Decimal:
		return decimal(b, t.IsBig, t.Scale), nil
	case UUID:
		return uuid(b)
	case Float:
		return float(b)
	case Impala:
		return impala(b)
	}
	n, err := signed(b)
	if err != nil {
		return nil, err
	}
	return t.ofInteger(n, len(b))
}

// ofInteger returns the value of an integer of the given width in bytes, sign-extended.
func (t Type) ofInteger(n int64, width int) (any, error) {
	switch t.Kind {
	case Bool:
		return n != 0, nil
	case Whole:
		if width < 8 {
			n &= 1<<(8*width) - 1
		}
		return Unsigned(uint64(n)), nil
	case Date:
		if t.Unit == Millis {
			n, _ = floor(n, Millis*daySize)
		}
		return date(n)
	case Time:
		return timeOfDay(n, t.Unit)
	case Timestamp:
		return timestamp(n, t.Unit, t.IsMoment)
	case Duration:
		return duration(n, t.Unit), nil
	}
	return int(n), nil
}

func (t Type) text(b []byte) (any, error) {
	switch {
	case valid.UTF8(b):
		return string(b), nil
	case t.Kind == Untyped:
		return append([]byte{}, b...), nil
	}
	return nil, bad("it is not valid UTF-8")
}

func signed(b []byte) (int64, error) {
	switch len(b) {
	case 1:
		return int64(int8(b[0])), nil
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b))), nil
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b))), nil
	case 8:
		return int64(binary.LittleEndian.Uint64(b)), nil
	}
	return 0, bad("an integer has %d bytes", len(b))
}

func float(b []byte) (any, error) {
	switch len(b) {
	case 2:
		return half(binary.LittleEndian.Uint16(b)), nil
	case 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
	case 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
	}
	return nil, bad("a floating-point number has %d bytes", len(b))
}

// half returns the value of an IEEE 754 number of 16 bits.
func half(h uint16) float64 {
	fraction, exponent := float64(h&0x3ff), int(h>>10&0x1f)
	var x float64
	switch exponent {
	case 0:
		x = math.Ldexp(fraction, -24)
	case 31:
		if x = math.Inf(1); fraction != 0 {
			x = math.NaN()
		}
	default:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if h>>15 != 0 {
		return -x
	}
	return x
}

// uuid returns the form of RFC 9562: 8-4-4-4-12.
func uuid(b []byte) (any, error) {
	if len(b) != 16 {
		return nil, bad("a UUID has %d bytes, want 16", len(b))
	}
	out := make([]byte, 36)
	hex.Encode(out, b[:4])
	at := 8
	for i := 4; i < 10; i += 2 {
		out[at] = '-'
		hex.Encode(out[at+1:], b[i:i+2])
		at += 5
	}
	out[at] = '-'
	hex.Encode(out[at+1:], b[10:])
	return string(out), nil
}

// julian1970 is the Julian day of 1970-01-01.
const julian1970 = 2440588

// impala returns a timestamp as Impala and Spark once stored it. It is written as a local time.
func impala(b []byte) (any, error) {
	if len(b) != 12 {
		return nil, bad("a timestamp of 96 bits has %d bytes", len(b))
	}
	nanos, day := int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint32(b[8:]))-julian1970
	seconds, rest := floor(nanos, Nanos)
	if seconds < 0 || seconds > daySize || day < firstDay || day > lastDay {
		return nil, bad("a timestamp of 96 bits has day %d and %d nanoseconds", day, nanos)
	}
	text, err := timestamp(day*daySize+seconds, Seconds, false)
	if err != nil {
		return nil, err
	}
	return text.(string) + fraction(rest, Nanos), nil
}

// IsText reports whether a column of the type can be the text of documents.
func (t Type) IsText() bool {
	switch t.Kind {
	case Untyped, Text, Binary, JSON, Null:
		return true
	}
	return false
}

// TextOf returns the text of a document's stored bytes, nil if it is null. The text of a JSON string is the string;
// that of other JSON is the JSON as it is written. It may have the memory of b. The caller checks that it is UTF-8.
func (t Type) TextOf(b []byte) ([]byte, error) {
	switch {
	case t.Kind == Null:
		return nil, nil
	case t.Kind != JSON || !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte{'"'}):
		return b, nil
	}
	v, err := t.Of(b)
	if err != nil {
		return nil, err
	}
	return []byte(v.(string)), nil
}
