// Package reply decodes a loader's reply: an Arrow IPC stream with the columns index (uint32) and tokens (list of
// uint32).
//
// It does not use Arrow's own reader. If a damaged message states a huge length, that reader allocates it before it
// checks the bytes, and the process ends. This decoder allocates nothing larger than the reply.
package reply

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"

	"millrace"
)

// continuation begins every message of an Arrow IPC stream.
const continuation = 0xFFFFFFFF

// These are the numbers of the fields of Arrow's Message and RecordBatch, and the kind of a record batch's header.
const (
	messageKind, messageHeader, messageBody   = 1, 2, 3
	batchRows, batchNodes, batchBuffers, zips = 0, 1, 2, 3
	recordBatch                               = 3
)

// message is one message of a stream in memory. Its slices are parts of the stream.
type message struct{ meta, body []byte }

// cut returns the first message of a stream and the rest; io.EOF at its end. Like every reader of flatbuffers here, it
// may panic if they are damaged. Decoder.Rows recovers.
func cut(raw []byte) (m message, rest []byte, err error) {
	if len(raw) == 0 {
		return m, nil, io.EOF
	}
	if len(raw) < 8 {
		return m, nil, fmt.Errorf("%d bytes after the last message: %w", len(raw), io.ErrUnexpectedEOF)
	}
	if mark := binary.LittleEndian.Uint32(raw); mark != continuation {
		return m, nil, millrace.Errorf(millrace.ErrMismatch, "message begins with %#x", mark)
	}
	size := uint64(binary.LittleEndian.Uint32(raw[4:]))
	if size == 0 {
		return m, nil, io.EOF
	}
	if size < 8 || uint64(len(raw)) < 8+size {
		return m, nil, fmt.Errorf("message of %d bytes in %d: %w", size, len(raw), io.ErrUnexpectedEOF)
	}
	m.meta, rest = raw[8:8+size], raw[8+size:]
	body := root(m.meta).uint64(messageBody)
	if uint64(len(rest)) < body {
		return m, nil, fmt.Errorf("body of %d bytes in %d: %w", body, len(rest), io.ErrUnexpectedEOF)
	}
	m.body = rest[:body]
	return m, rest[body:], nil
}

// columns are the copied columns of a record batch. Row i answers request index[i] with
// values[offsets[i]:offsets[i+1]].
type columns struct{ index, offsets, values []uint32 }

func (m message) columns() (c columns, err error) {
	top := root(m.meta)
	if kind := top.byte(messageKind); kind != recordBatch {
		return c, millrace.Errorf(millrace.ErrMismatch, "message of kind %d", kind)
	}
	batch := top.table(messageHeader)
	rows := batch.uint64(batchRows)
	nodes, buffers := batch.pairs(batchNodes), batch.pairs(batchBuffers)
	// The nodes are index, tokens and the list's values. An empty validity bitmap comes before the content of each.
	if len(nodes) != 3 || len(buffers) != 6 || batch.has(zips) ||
		nodes[0][0] != rows || nodes[1][0] != rows || nodes[0][1]|nodes[1][1]|nodes[2][1] != 0 {
		return c, millrace.Errorf(millrace.ErrMismatch, "%d columns in %d buffers", len(nodes), len(buffers))
	}
	var errs [3]error
	c.index, errs[0] = m.words(buffers[1], rows)
	c.offsets, errs[1] = m.words(buffers[3], rows+1)
	c.values, errs[2] = m.words(buffers[5], nodes[2][0])
	return c, errors.Join(errs[:]...)
}

// words copies the first n words of a buffer, given as offset and length in bytes.
func (m message) words(buffer [2]uint64, n uint64) ([]uint32, error) {
	at, size := buffer[0], buffer[1]
	if at > uint64(len(m.body)) || size > uint64(len(m.body))-at || n > size/4 {
		return nil, millrace.Errorf(millrace.ErrMismatch, "%d values in %d bytes at %d of %d", n, size, at, len(m.body))
	}
	out := make([]uint32, n)
	copy(arrow.Uint32Traits.CastToBytes(out), m.body[at:])
	return out, nil
}

// table is a flatbuffers table: the bytes, and the offset at which it begins.
type table struct {
	b  []byte
	at int
}

func root(b []byte) table { return table{b, int(binary.LittleEndian.Uint32(b))} }

// field returns the offset of a field's value, 0 if it is absent.
func (t table) field(n int) int {
	layout := t.at - int(int32(binary.LittleEndian.Uint32(t.b[t.at:])))
	if slot := 4 + 2*n; slot < int(binary.LittleEndian.Uint16(t.b[layout:])) {
		if off := int(binary.LittleEndian.Uint16(t.b[layout+slot:])); off != 0 {
			return t.at + off
		}
	}
	return 0
}

func (t table) has(n int) bool { return t.field(n) != 0 }

func (t table) byte(n int) byte {
	if at := t.field(n); at != 0 {
		return t.b[at]
	}
	return 0
}

func (t table) uint64(n int) uint64 {
	if at := t.field(n); at != 0 {
		return binary.LittleEndian.Uint64(t.b[at:])
	}
	return 0
}

// follow returns the offset to which the reference in a field points.
func (t table) follow(n int) int {
	at := t.field(n)
	return at + int(binary.LittleEndian.Uint32(t.b[at:]))
}

func (t table) table(n int) table { return table{t.b, t.follow(n)} }

// pairs reads at most 8 elements of a vector of structs of two 64-bit numbers. A longer vector is damaged.
func (t table) pairs(n int) (out [][2]uint64) {
	at := t.follow(n)
	for i := range min(int(binary.LittleEndian.Uint32(t.b[at:])), 8) {
		p := t.b[at+4+16*i:]
		out = append(out, [2]uint64{binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])})
	}
	return out
}
