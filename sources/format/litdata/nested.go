package litdata

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"millrace/sources/values"
)

// nestedValue returns lists and dicts of a `json` leaf. Older versions wrote JSON; newer ones write a tag before each
// value.
func nestedValue(b []byte) (any, error) {
	if len(b) == 0 || b[0] > 0x20 {
		return values.FromJSON(b)
	}
	n := nested{b: b}
	v := n.value(0)
	if n.err == nil && len(n.b) > 0 {
		n.fail("%d bytes follow a nested value", len(n.b))
	}
	return v, n.err
}

// nested reads nested values. After an error, it returns zero values.
type nested struct {
	b   []byte
	err error
}

func (n *nested) fail(format string, args ...any) {
	if n.err == nil {
		n.err = fmt.Errorf(format, args...)
	}
	n.b = nil
}

// take returns the next bytes, nil if there are fewer.
func (n *nested) take(size int) []byte {
	if size > len(n.b) {
		n.fail("a nested value ends early")
		return nil
	}
	out := n.b[:size]
	n.b = n.b[size:]
	return out
}

func (n *nested) byte() byte {
	if b := n.take(1); b != nil {
		return b[0]
	}
	return 0
}

// count reads the number of parts that take at least least bytes each.
func (n *nested) count(least int) int {
	b := n.take(4)
	if b == nil {
		return 0
	}
	count := int64(binary.LittleEndian.Uint32(b))
	if count*int64(least) > int64(len(n.b)) {
		n.fail("a nested list of %d values ends early", count)
		return 0
	}
	return int(count)
}

func (n *nested) word() uint64 {
	if b := n.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (n *nested) text() string     { return string(n.take(n.count(1))) }
func (n *nested) integer() any     { return int(n.word()) }
func (n *nested) float() any       { return math.Float64frombits(n.word()) }
func (n *nested) boolean() any     { return n.byte() != 0 }
func (n *nested) textValue() any   { return n.text() }
func (n *nested) nothing() any     { return nil }
func (n *nested) deeper(d int) any { return n.value(d + 1) }

// The tags of values.
const (
	tagJSON = iota
	tagTexts
	tagIntegers
	tagFloats
	tagBooleans
	tagDict
	tagRecords
	tagText
	tagInteger
	tagFloat
	tagBoolean
	tagNone
)

// value reads a value with its tag.
func (n *nested) value(depth int) any {
	if depth > mostDepth {
		n.fail("values are nested deeper than %d", mostDepth)
		return nil
	}
	switch tag := n.byte(); tag {
	case tagJSON:
		v, err := values.FromJSON(n.take(n.count(1)))
		if err != nil && n.err == nil {
			n.err = err
		}
		return v
	case tagTexts:
		return n.list(n.count(4), n.textValue)
	case tagIntegers:
		return n.list(n.count(8), n.integer)
	case tagFloats:
		return n.list(n.count(8), n.float)
	case tagBooleans:
		return n.list(n.count(1), n.boolean)
	case tagDict:
		var out values.Object
		for range n.count(5) {
			key := n.text()
			out.Add(key, n.deeper(depth))
		}
		return out.Unique()
	case tagRecords:
		return n.records()
	case tagText:
		return n.text()
	case tagInteger:
		return n.integer()
	case tagFloat:
		return n.float()
	case tagBoolean:
		return n.boolean()
	case tagNone:
		return nil
	default:
		n.fail("a nested value has the tag %d, which is not known", tag)
		return nil
	}
}

func (n *nested) list(count int, one func() any) any {
	out := make([]any, count)
	for i := range out {
		out[i] = one()
	}
	return out
}

// records reads a list of dicts that share their keys.
func (n *nested) records() any {
	b := n.take(4)
	if b == nil {
		return nil
	}
	rows := int64(binary.LittleEndian.Uint32(b))
	keys := make([]string, n.count(4))
	for i := range keys {
		keys[i] = n.text()
	}
	if rows*int64(max(len(keys), 1)) > int64(len(n.b)) {
		n.fail("a nested list of %d dicts ends early", rows)
		return nil
	}
	return n.list(int(rows), func() any {
		var row values.Object
		for _, key := range keys {
			row.Add(key, n.scalar())
		}
		return row.Unique()
	})
}

// scalar reads a value inside a list of dicts.
func (n *nested) scalar() any {
	kinds := []func() any{n.nothing, n.textValue, n.integer, n.float, n.boolean}
	tag := int(n.byte()) - 0x10
	if n.err == nil && (tag < 0 || tag >= len(kinds)) {
		n.err = errors.New("a nested dict has a value of an unknown tag")
	}
	if n.err != nil {
		return nil
	}
	return kinds[tag]()
}
