package arrow

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"millrace"
	"millrace/sources"
)

// The framing of https://arrow.apache.org/docs/format/Columnar.html: messages one after the other, each with its
// metadata and a body. A file has a magic before them and a footer behind them, which repeats their places.
const (
	magic        = "ARROW1"
	magicPadded  = 8
	fileTail     = 4 + len(magic)
	continuation = 0xFFFFFFFF
	mostMetadata = 64 << 20 // bytes of a message's metadata
	headerStep   = 16 << 10 // bytes of one read of metadata
)

// The kinds of messages.
const (
	messageSchema     = 1
	messageDictionary = 2
	messageBatch      = 3
)

// message is a message without its body.
type message struct {
	kind   int
	header flat
	body   int64 // where the body begins in the file
	size   int64 // of the body
	next   int64 // where the next message begins
	marked bool  // it begins with the mark of a message, as all have but those of old writers
}

func damaged(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s: %w", f.Name(), fmt.Errorf(format, args...))
}

// extent returns where the messages begin and where they end at the latest.
func extent(f sources.File) (from, end int64, err error) {
	end = f.Size()
	head := make([]byte, min(magicPadded, end))
	if err := sources.ReadFull(f, head, 0); err != nil {
		return 0, 0, err
	}
	if len(head) < magicPadded || string(head[:len(magic)]) != magic {
		return 0, end, nil
	}
	var tail [fileTail]byte
	if end < magicPadded+int64(fileTail) {
		return 0, 0, damaged(f, "it is cut off behind its first bytes")
	}
	if err := sources.ReadFull(f, tail[:], end-int64(fileTail)); err != nil {
		return 0, 0, err
	}
	if string(tail[4:]) != magic {
		return 0, 0, damaged(f, "it ends with %q, want %q: it is cut off", tail[4:], magic)
	}
	footer := int64(binary.LittleEndian.Uint32(tail[:4]))
	end -= int64(fileTail) + footer
	if end < magicPadded {
		return 0, 0, damaged(f, "it declares a footer of %d bytes", footer)
	}
	return magicPadded, end, nil
}

// messages reads messages in turn. Small messages that are close together take one read.
type messages struct {
	f   sources.File
	end int64
	buf []byte
	lo  int64
}

// bytesAt returns n bytes of the file, which the caller knows to be there. They are valid until the next call.
func (m *messages) bytesAt(off, n int64) ([]byte, error) {
	if off < m.lo || off+n > m.lo+int64(len(m.buf)) {
		size := min(max(n, headerStep), m.f.Size()-off)
		if int64(cap(m.buf)) < size {
			m.buf = make([]byte, size)
		}
		m.buf, m.lo = m.buf[:size], off
		if err := sources.ReadFull(m.f, m.buf, off); err != nil {
			m.buf = m.buf[:0]
			return nil, err
		}
	}
	return m.buf[off-m.lo:][:n], nil
}

// at returns the message at a byte of the file, nil at the end of the messages. Its metadata is valid until the next
// call.
func (m *messages) at(off int64) (*message, error) {
	if off == m.end {
		return nil, nil // a stream needs no end marker
	}
	if m.end-off < 4 {
		return nil, damaged(m.f, "it ends inside the message at byte %d", off)
	}
	head, err := m.bytesAt(off, min(8, m.end-off))
	if err != nil {
		return nil, err
	}
	size, from := int64(binary.LittleEndian.Uint32(head)), off+4
	marked := size == continuation
	if marked {
		if len(head) < 8 {
			return nil, damaged(m.f, "it ends inside the message at byte %d", off)
		}
		size, from = int64(binary.LittleEndian.Uint32(head[4:])), off+8
	}
	if size == 0 {
		return nil, nil
	}
	if size > m.end-from {
		return nil, damaged(m.f, "the message at byte %d declares %d bytes of metadata", off, size)
	}
	if size > mostMetadata {
		return nil, damaged(m.f, "the message at byte %d: %w", off, sources.Limited("write the file again with fewer "+
			"columns, or without metadata of its schema", "it has %d bytes of metadata, at most %d are read", size,
			mostMetadata))
	}
	b, err := m.bytesAt(from, size)
	if err != nil {
		return nil, err
	}
	msg, err := parseMessage(b)
	if err != nil {
		return nil, damaged(m.f, "message at byte %d: %w", off, err)
	}
	if msg.body = from + size; msg.size < 0 || msg.size > m.end-msg.body {
		return nil, damaged(m.f, "the message at byte %d declares a body of %d bytes, and %d follow", off, msg.size,
			m.end-msg.body)
	}
	msg.next, msg.marked = msg.body+msg.size, marked
	return msg, nil
}

// checkEnd checks the end marker at byte off of the file: only zeros may follow it. marked is the framing.
func (m *messages) checkEnd(off int64, marked bool) error {
	if off == m.end {
		return nil // a stream needs no end marker
	}
	head, err := m.bytesAt(off, 4)
	if err != nil {
		return err
	}
	if marked && binary.LittleEndian.Uint32(head) != continuation {
		return damaged(m.f, "there are zeros at byte %d in place of a message or the end marker", off)
	}
	for off += 4; off < m.end; {
		rest, err := m.bytesAt(off, min(headerStep, m.end-off))
		if err != nil {
			return err
		}
		if i := bytes.IndexFunc(rest, func(r rune) bool { return r != 0 }); i >= 0 {
			return damaged(m.f, "bytes follow its end marker, at byte %d; write a file of each stream",
				off+int64(i))
		}
		off += int64(len(rest))
	}
	return nil
}

func parseMessage(b []byte) (*message, error) {
	t, err := rootOf(b)
	if err != nil {
		return nil, err
	}
	number, err := t.number(1, 1, 0)
	if err != nil {
		return nil, err
	}
	header, ok, err := t.table(2)
	if err != nil || !ok {
		return nil, errFlat
	}
	size, err := t.number(3, 8, 0)
	return &message{kind: int(number), header: header, size: size}, err
}

// place is the place of a record batch or of a batch of a dictionary.
type place struct {
	at    int64  // of its message
	first uint64 // row of the file, or value of the dictionary
	rows  uint64
}

// layout has the places of everything in a file.
type layout struct {
	top          *field
	end          int64
	rows         uint64
	batches      []place
	bytes        int64                   // of the batches' bodies
	packed       bool                    // some buffers are compressed
	dictionaries map[int64][]*dictValues // by number, in the order of the file
	isFile       bool
	marked       bool // the messages have marks
}

// dictValues are the values of a dictionary from one message that replaced all before, with its deltas.
type dictValues struct {
	before int // record batches before the first message
	parts  []place
	// since has the number of record batches before each part
	since []int
}

// mostBatches bounds the memory of a file's layout.
const mostBatches = 16 << 20

// readLayout reads the heads of the messages of a stream or a file, without their bodies.
func readLayout(ctx context.Context, f sources.File) (*layout, error) {
	at, end, err := extent(f)
	if err != nil {
		return nil, err
	}
	x := &layout{end: end, dictionaries: map[int64][]*dictValues{}, isFile: at > 0}
	m := &messages{f: f, end: end}
	if x.isFile {
		err = x.readFooter(ctx, m)
	} else {
		err = x.follow(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// follow reads the messages of a stream one after the other.
func (x *layout) follow(ctx context.Context, m *messages) error {
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		msg, err := m.at(at)
		if err != nil {
			return err
		}
		if msg == nil {
			if err := m.checkEnd(at, x.marked); err != nil {
				return err
			}
			break
		}
		x.marked = msg.marked
		if err := x.add(msg, at); err != nil {
			return damaged(m.f, "message at byte %d: %w", at, err)
		}
		at = msg.next
	}
	if x.top == nil {
		return damaged(m.f, "it has no schema: no Arrow file")
	}
	return nil
}

func (x *layout) add(msg *message, at int64) (err error) {
	if (msg.kind == messageSchema) != (x.top == nil) {
		return fmt.Errorf("a schema is not the first message, or not the only one")
	}
	switch msg.kind {
	case messageSchema:
		x.top, err = readSchema(msg.header)
		return err
	case messageDictionary:
		return x.addDictionary(msg, at)
	case messageBatch:
		rows, err := msg.header.number(0, 8, 0)
		if err != nil {
			return err
		}
		if rows < 0 || rows > 1<<48 {
			return fmt.Errorf("it declares %d rows", rows)
		}
		if len(x.batches) >= mostBatches {
			return sources.Limited("write the file again with larger record batches, or as several files",
				"it has more than %d record batches", mostBatches)
		}
		if err := x.checkNodes(msg, rows); err != nil {
			return err
		}
		_, packed, err := msg.header.table(3)
		if err != nil {
			return err
		}
		x.packed = x.packed || packed
		x.bytes += msg.size
		x.batches = append(x.batches, place{at, x.rows, uint64(rows)})
		x.rows += uint64(rows)
		return nil
	}
	return fmt.Errorf("a message of kind %d", msg.kind)
}

// checkNodes compares the rows that a batch declares with those of its first column.
func (x *layout) checkNodes(msg *message, rows int64) error {
	nodes, _, err := msg.header.vector(1, 16)
	if err == nil && len(x.top.children) > 0 &&
		(len(nodes) < 16 || int64(binary.LittleEndian.Uint64(nodes)) != rows) {
		err = fmt.Errorf("it declares %d rows, and its columns have others", rows)
	}
	return err
}

func (x *layout) addDictionary(msg *message, at int64) error {
	id, err := msg.header.number(0, 8, 0)
	if err != nil {
		return err
	}
	isDelta, err := msg.header.number(2, 1, 0)
	if err != nil {
		return err
	}
	data, ok, err := msg.header.table(1)
	if err != nil || !ok {
		return errFlat
	}
	n, err := data.number(0, 8, 0)
	if err != nil || n < 0 || n > 1<<48 {
		return errFlat
	}
	all := x.dictionaries[id]
	if isDelta == 0 || len(all) == 0 {
		all = append(all, &dictValues{before: len(x.batches)})
	}
	v := all[len(all)-1]
	first := uint64(0)
	if k := len(v.parts); k > 0 {
		first = v.parts[k-1].first + v.parts[k-1].rows
	}
	v.parts, v.since = append(v.parts, place{at, first, uint64(n)}), append(v.since, len(x.batches))
	x.dictionaries[id] = all
	return nil
}

// dictionaryOf returns the parts of a dictionary that hold for a record batch.
func (x *layout) dictionaryOf(id int64, batch int) []place {
	all := x.dictionaries[id]
	for i := len(all) - 1; i >= 0; i-- {
		v := all[i]
		if v.before > batch && !x.isFile {
			continue
		}
		n := len(v.parts)
		for n > 1 && v.since[n-1] > batch && !x.isFile {
			n--
		}
		return v.parts[:n]
	}
	return nil
}
