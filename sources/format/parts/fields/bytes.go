package fields

import "millrace/sources/values"

// valueBytes is the memory of a value beside its content: its place in a list, and its header.
const valueBytes = 24

// Bytes estimates the memory of a value.
func Bytes(v any) int64 {
	n := int64(valueBytes)
	switch v := v.(type) {
	case string:
		n += int64(len(v))
	case values.Number:
		n += int64(len(v))
	case []byte:
		n += int64(len(v))
	case []uint32:
		n += 4 * int64(len(v))
	case []any:
		for _, x := range v {
			n += Bytes(x)
		}
	case values.Object:
		for i, key := range v.Keys {
			n += valueBytes + int64(len(key)) + Bytes(v.Values[i])
		}
	}
	return n
}
