package arrow

import (
	"context"
	"encoding/binary"

	"millrace/sources"
)

// The footer of a file has the schema and the places of all messages (File.fbs). It decides, as in every reader: some
// writers leave the messages before the first batch in another form, and a file may have bytes between its messages.

// blockBytes is the size of a place in the footer: i64 offset, i32 bytes of metadata, padding, i64 bytes of body.
const blockBytes = 24

// readFooter reads the footer, and the heads of the messages that it lists.
func (x *layout) readFooter(ctx context.Context, m *messages) error {
	size := m.f.Size() - int64(fileTail) - m.end
	if size > mostMetadata {
		return damaged(m.f, "it declares a footer of %d bytes", size)
	}
	b := make([]byte, size)
	if err := sources.ReadFull(m.f, b, m.end); err != nil {
		return err
	}
	footer, err := rootOf(b)
	if err != nil {
		return damaged(m.f, "footer at byte %d: %w", m.end, err)
	}
	schema, ok, err := footer.table(1)
	if err != nil || !ok {
		return damaged(m.f, "footer at byte %d: %w", m.end, errFlat)
	}
	if x.top, err = readSchema(schema); err != nil {
		return damaged(m.f, "footer at byte %d: %w", m.end, err)
	}
	for _, list := range []struct{ field, kind int }{{2, messageDictionary}, {3, messageBatch}} {
		blocks, _, err := footer.vector(list.field, blockBytes)
		if err != nil {
			return damaged(m.f, "footer at byte %d: %w", m.end, err)
		}
		for ; len(blocks) > 0; blocks = blocks[blockBytes:] {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := x.addBlock(m, blocks, list.kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// addBlock reads the head of a message that the footer lists, and compares it with the footer.
func (x *layout) addBlock(m *messages, block []byte, kind int) error {
	le := binary.LittleEndian
	at, head, body := int64(le.Uint64(block)), int64(int32(le.Uint32(block[8:]))), int64(le.Uint64(block[16:]))
	if at < magicPadded || at >= m.end {
		return damaged(m.f, "its footer puts a message at byte %d, and messages end at %d", at, m.end)
	}
	msg, err := m.at(at)
	if err != nil {
		return err
	}
	if msg == nil || msg.kind != kind || msg.body != at+head || msg.size != body {
		return damaged(m.f, "the message at byte %d is not the one that its footer lists", at)
	}
	if err := x.add(msg, at); err != nil {
		return damaged(m.f, "message at byte %d: %w", at, err)
	}
	return nil
}
