package parquet

import (
	"encoding/binary"
	"errors"
)

// The types of Thrift's compact protocol
// (https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

const (
	mostThriftDepth = 32
	leastStruct     = 3 // least average bytes of a struct in a list: a real one names a field and has its value
)

var (
	errThriftShort = errors.New("metadata ends early")
	errThriftBad   = errors.New("metadata is no Thrift")
)

// thriftLen returns the number of bytes of the struct at the start of b, or errThriftShort if b ends before it. It has
// then seen every list whole. So a flipped length cannot make the decoder allocate more than the bytes of the struct
// allow.
func thriftLen(b []byte) (int, error) {
	rest, err := passStruct(b, 0)
	return len(b) - len(rest), err
}

func passStruct(b []byte, depth int) ([]byte, error) {
	if depth > mostThriftDepth {
		return nil, errThriftBad
	}
	for {
		if len(b) == 0 {
			return nil, errThriftShort
		}
		head := b[0]
		b = b[1:]
		if head&0xf == thriftStop {
			if head != 0 {
				return nil, errThriftBad
			}
			return b, nil
		}
		var err error
		if head>>4 == 0 { // the field's number follows
			if b, err = passVarint(b); err != nil {
				return nil, err
			}
		}
		if t := head & 0xf; t != thriftTrue && t != thriftFalse { // a field's bool is in its type
			if b, err = passValue(b, t, depth); err != nil {
				return nil, err
			}
		}
	}
}

func passValue(b []byte, t byte, depth int) ([]byte, error) {
	switch t {
	case thriftTrue, thriftFalse, thriftByte:
		return passBytes(b, 1)
	case thriftI16, thriftI32, thriftI64:
		return passVarint(b)
	case thriftDouble:
		return passBytes(b, 8)
	case thriftBinary:
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, shortOrBad(size)
		}
		return passBytes(b[size:], n)
	case thriftList, thriftSet:
		return passList(b, depth+1)
	case thriftStruct:
		return passStruct(b, depth+1)
	}
	return nil, errThriftBad // maps do not occur in Parquet
}

func passList(b []byte, depth int) ([]byte, error) {
	if depth > mostThriftDepth {
		return nil, errThriftBad
	}
	if len(b) == 0 {
		return nil, errThriftShort
	}
	t, n := b[0]&0xf, uint64(b[0]>>4)
	b = b[1:]
	if n == 15 {
		size := 0
		if n, size = binary.Uvarint(b); size <= 0 {
			return nil, shortOrBad(size)
		}
		b = b[size:]
	}
	before := len(b)
	if n > uint64(before) {
		return nil, errThriftShort
	}
	var err error
	for range n {
		if b, err = passValue(b, t, depth); err != nil {
			return nil, err
		}
	}
	if t == thriftStruct && uint64(before-len(b)) < leastStruct*n {
		return nil, errThriftBad
	}
	return b, nil
}

func passVarint(b []byte) ([]byte, error) {
	_, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, shortOrBad(size)
	}
	return b[size:], nil
}

func passBytes(b []byte, n uint64) ([]byte, error) {
	if n > uint64(len(b)) {
		return nil, errThriftShort
	}
	return b[n:], nil
}

func shortOrBad(size int) error {
	if size == 0 {
		return errThriftShort
	}
	return errThriftBad
}
