package link

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"millrace"
)

// continuation begins every message of an Arrow IPC stream.
const continuation = 0xFFFFFFFF

// messages reads an Arrow IPC stream that lies in memory without copying message bodies, as Arrow's own reader does.
type messages struct{ raw []byte }

// Message implements ipc.MessageReader.
func (m *messages) Message() (*ipc.Message, error) {
	if len(m.raw) < 8 {
		return nil, io.EOF
	}
	if mark := binary.LittleEndian.Uint32(m.raw); mark != continuation {
		return nil, fmt.Errorf("message begins with %#x: %w", mark, millrace.ErrMismatch)
	}
	size := uint64(binary.LittleEndian.Uint32(m.raw[4:]))
	if size == 0 {
		return nil, io.EOF
	}
	if size < 8 || uint64(len(m.raw)) < 8+size {
		return nil, fmt.Errorf("message of %d bytes in %d: %w", size, len(m.raw), io.ErrUnexpectedEOF)
	}
	meta := memory.NewBufferBytes(m.raw[8 : 8+size])
	rest := m.raw[8+size:]
	body := uint64(ipc.NewMessage(meta, memory.NewBufferBytes(nil)).BodyLen())
	if uint64(len(rest)) < body {
		return nil, fmt.Errorf("body of %d bytes in %d: %w", body, len(rest), io.ErrUnexpectedEOF)
	}
	m.raw = rest[body:]
	return ipc.NewMessage(meta, memory.NewBufferBytes(rest[:body])), nil
}

// Retain and Release implement ipc.MessageReader; the memory is the garbage collector's.
func (m *messages) Retain() {}

// Release does nothing.
func (m *messages) Release() {}
