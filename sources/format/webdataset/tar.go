package webdataset

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
)

// block is the unit of a tar archive.
const block = 512

// mostHeader bounds the bytes of an extended header and of a long name.
const mostHeader = 1 << 20

// unknownEnd takes the place of the end of an archive that only streams.
const unknownEnd = math.MaxInt64 / 2

// member is one file of an archive. Its name is valid until the next one.
type member struct {
	start, data, end int64 // first byte of its headers; of its data; behind its last block
	size             int64
	name             []byte
	keyEnd           int  // length of the key; -1 if the name has none
	isFile           bool // not a link, a directory or a device
	isSparse         bool
}

// isField reports whether the member is a field of a group. Names like __meta__/… are WebDataset's own.
func (m *member) isField() bool { return m.isFile && m.keyEnd >= 0 }

func (m *member) key() []byte { return m.name[:m.keyEnd] }

// suffix returns the name of the member's field.
func (m *member) suffix() []byte { return m.name[m.keyEnd+1:] }

// keyEnd returns the length of a name's key, -1 if it has none. The key ends before the first dot of the name's last
// part. If that part begins with a dot, the key is the directory, unless the directory's own name has a dot.
func keyEnd(name []byte) int {
	if isMeta(name) {
		return -1
	}
	base := bytes.LastIndexByte(name, '/') + 1
	dot := bytes.IndexByte(name[base:], '.')
	switch {
	case dot > 0:
		return base + dot
	case dot < 0 || base == 0:
		return -1
	}
	above := bytes.LastIndexByte(name[:base-1], '/') + 1
	if bytes.IndexByte(name[above:base], '.') >= 0 {
		return -1
	}
	return base
}

// isMeta reports whether the first part of a name is like __meta__.
func isMeta(name []byte) bool {
	first, _, _ := bytes.Cut(name, []byte("/"))
	return len(first) >= 4 && bytes.HasPrefix(first, []byte("__")) && bytes.HasSuffix(first, []byte("__"))
}

// walk goes through the headers of an archive, or of a part of it. One goroutine uses it.
type walk struct {
	window    *extents.Window
	at        int64 // of the next header
	end       int64
	along     int64 // bytes that a read fetches beside a header
	whole     bool  // it goes to the end of the archive, which has a mark
	truncated bool  // the mark may be missing
	name      []byte
	member    member
}

// headRead is the size of a read of headers: the members of text archives are small.
const headRead = 64 << 10

func newWalk(f sources.File, at, end int64) *walk {
	return &walk{window: &extents.Window{File: f}, at: at, end: end, along: headRead}
}

// extended has the facts of the headers before a member's own.
type extended struct {
	name, size []byte
	isSparse   bool
}

// next returns the next member, and false at the end. The member is valid until the next call. An archive ends at a
// block of zeros; behind it there are only zeros, or another archive.
func (w *walk) next() (*member, bool, error) {
	start, x, mark := w.at, extended{}, int64(-1)
	for {
		ended, err := w.ended()
		if err != nil {
			return nil, false, err
		}
		if ended {
			if start != w.at {
				return nil, false, w.damaged(w.at, "the archive ends behind an extended header")
			}
			if w.whole && !w.truncated {
				return nil, false, w.damaged(w.at, "the archive is cut off, because it has no end mark; copy it "+
					"again, or write `truncated: accept` if no member is missing")
			}
			return nil, false, nil
		}
		h, err := w.fetch(w.at, block)
		if err != nil {
			return nil, false, err
		}
		if h[0] == 0 && len(bytes.Trim(h, "\x00")) == 0 {
			more, err := w.passMark()
			if err != nil || !more {
				return nil, false, err
			}
			mark = start
			start, x = w.at, extended{}
			continue
		}
		if err := w.checkSum(h); err != nil {
			if mark >= 0 {
				err = w.afterMark(w.at)
			}
			return nil, false, err
		}
		size, ok := number(h[124:136])
		if !ok {
			return nil, false, w.damaged(w.at, "the size of a member is no number")
		}
		kind := h[156]
		switch kind {
		case 'x', 'g', 'L', 'K':
			if err := w.extend(&x, kind, size); err != nil {
				return nil, false, err
			}
			continue
		}
		return w.found(h, start, size, kind, &x)
	}
}

// ended reports whether the archive ends at the next header.
func (w *walk) ended() (bool, error) {
	if w.end == unknownEnd {
		return w.window.Ended(w.at)
	}
	return w.at == w.end, nil
}

// passMark goes to the header behind an end mark, as in archives that were put together. It returns false if only
// zeros follow.
func (w *walk) passMark() (bool, error) {
	at, err := w.window.Zeros(w.at+block, w.end)
	if err != nil || at < 0 {
		return false, err
	}
	next := at / block * block
	if at-w.at > extents.MostZeros || w.end-next < block {
		return false, w.afterMark(at)
	}
	w.at = next
	return true, nil
}

// afterMark returns the error of bytes behind an end mark that are no archive.
func (w *walk) afterMark(at int64) error {
	return w.damaged(at, "there is an end mark before it, and the bytes behind that are no archive; copy it again")
}

// found makes the member of its header.
func (w *walk) found(h []byte, start, size int64, kind byte, x *extended) (*member, bool, error) {
	m := &w.member
	*m = member{start: start, data: w.at + block, isSparse: x.isSparse || kind == 'S',
		isFile: kind == '0' || kind == 0 || kind == '7' || kind == 'S'}
	switch {
	case x.name != nil:
		w.name = append(w.name[:0], x.name...)
	case string(h[257:263]) == "ustar\x00" && h[345] != 0:
		w.name = append(append(append(w.name[:0], text(h[345:500])...), '/'), text(h[:100])...)
	default:
		w.name = append(w.name[:0], text(h[:100])...)
	}
	if kind == 0 && bytes.HasSuffix(w.name, []byte("/")) {
		m.isFile = false // a directory of the oldest archives
	}
	m.name, m.keyEnd = w.name, keyEnd(w.name)
	if x.size != nil {
		var err error
		if size, err = strconv.ParseInt(string(x.size), 10, 64); err != nil || size < 0 {
			return nil, false, w.damaged(w.at, "the size %q of an extended header is no number", x.size)
		}
	}
	if kind >= '1' && kind <= '6' {
		size = 0 // links, devices and directories have no data
	}
	if m.isSparse && kind == 'S' && h[482] != 0 {
		return nil, false, millrace.Errorf(
			millrace.ErrInvalid,
			"read %s at byte %d: %s is a sparse file with a long map; pack it again without --sparse",
			w.window.File.Name(),
			w.at,
			m.name,
		)
	}
	m.size = size
	if size > w.end-m.data {
		return nil, false, w.damaged(w.at, "member %s has %d bytes, and the archive ends %d bytes behind its header",
			m.name, size, w.end-m.data)
	}
	m.end = min(m.data+blocks(size), w.end)
	w.at = m.end
	return m, true, nil
}

// extend reads the data of an extended header at w.at.
func (w *walk) extend(x *extended, kind byte, size int64) error {
	if size > w.end-w.at-block {
		return w.damaged(w.at, "an extended header has %d bytes", size)
	}
	if size > mostHeader {
		return w.damaged(w.at, "%w", sources.Limited("write the archive again with shorter names and attributes",
			"an extended header has %d bytes, at most %d are read", size, mostHeader))
	}
	b, err := w.fetch(w.at+block, size)
	if err != nil {
		return err
	}
	switch kind {
	case 'L':
		x.name = append([]byte(nil), text(b)...)
	case 'x', 'g':
		if err := w.records(x, b, kind == 'g'); err != nil {
			return err
		}
	}
	w.at = min(w.at+block+blocks(size), w.end)
	return nil
}

// records reads the records of a PAX header: `length key=value\n`.
func (w *walk) records(x *extended, b []byte, isGlobal bool) error {
	for len(b) > 0 {
		space := bytes.IndexByte(b, ' ')
		n, err := strconv.Atoi(string(b[:max(space, 0)]))
		if err != nil || n <= space+1 || n > len(b) || b[n-1] != '\n' {
			if len(bytes.Trim(b, "\x00")) == 0 {
				return nil
			}
			return w.damaged(w.at, "a record of an extended header has no length")
		}
		key, value, ok := bytes.Cut(b[space+1:n-1], []byte("="))
		if !ok {
			return w.damaged(w.at, "a record of an extended header has no key")
		}
		b = b[n:]
		switch k := string(key); {
		case isGlobal && (k == "path" || k == "size"):
			return millrace.Errorf(
				millrace.ErrInvalid,
				"read %s at byte %d: a global header sets the %s of all members, "+
					"which is not read; pack the archive again",
				w.window.File.Name(),
				w.at,
				k,
			)
		case isGlobal:
		case k == "path":
			x.name = append([]byte(nil), value...)
		case k == "size":
			x.size = append([]byte(nil), value...)
		case bytes.HasPrefix(key, []byte("GNU.sparse.")):
			x.isSparse = true
			if k == "GNU.sparse.name" {
				x.name = append([]byte(nil), value...)
			}
		}
	}
	return nil
}

// fetch returns n bytes, valid until the next call.
func (w *walk) fetch(at, n int64) ([]byte, error) {
	if n > w.end-at {
		return nil, w.damaged(at, "the archive ends inside a header")
	}
	return w.window.Fetch(at, at+n, min(at+w.along, w.end))
}

// checkSum compares the sum of a header's bytes. Old programs summed signed bytes.
func (w *walk) checkSum(h []byte) error {
	want, ok := number(h[148:156])
	var sum, signed int64
	for i, b := range h {
		if i >= 148 && i < 156 {
			b = ' '
		}
		sum += int64(b)
		signed += int64(int8(b))
	}
	if !ok || want != sum && want != signed {
		return w.damaged(w.at, "there is no header of a member: its checksum is wrong")
	}
	return nil
}

func (w *walk) damaged(at int64, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s at byte %d: %w", w.window.File.Name(), at,
		fmt.Errorf(format, args...))
}

// blocks rounds a size up to whole blocks.
func blocks(size int64) int64 { return (size + block - 1) / block * block }

// text returns the bytes before the first zero.
func text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// number returns a number of a header: octal digits, or binary if the first bit is set. It is not negative.
func number(b []byte) (n int64, ok bool) {
	if b[0]&0x80 != 0 {
		if b[0] != 0x80 {
			return 0, false // negative, or beyond 64 bits
		}
		for _, c := range b[1:] {
			if n >= 1<<55 {
				return 0, false
			}
			n = n<<8 | int64(c)
		}
		return n, true
	}
	digits := bytes.Trim(text(b), " ")
	for _, c := range digits {
		if c < '0' || c > '7' || n >= 1<<59 {
			return 0, false
		}
		n = n<<3 | int64(c-'0')
	}
	return n, true
}
