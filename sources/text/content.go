package text

import (
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/packed"
)

// headBytes is the number of first bytes of a file that are read at once. They show how the file is packed; most files
// have no more.
const headBytes = 1 << 20

// content returns the bytes of the file, unpacked. A file that is too long is millrace.ErrBadSample, before memory is
// taken for it.
func (s *shard) content() ([]byte, error) {
	size := s.file.Size()
	head := make([]byte, min(size, headBytes, s.limit))
	if err := sources.ReadFull(s.file, head, 0); err != nil {
		return nil, err
	}
	if kind := packed.KindShown(head); kind != packed.Plain {
		file := s.file
		if int64(len(head)) == size {
			file = held{bytes.NewReader(head), s.file.Name()}
		}
		return unpack(file, kind, s.limit)
	}
	switch {
	case size > s.limit:
		return nil, millrace.Errorf(millrace.ErrBadSample, "the file is longer than sample_bytes, %d", s.limit)
	case int64(len(head)) == size:
		return head, nil
	}
	b := make([]byte, size)
	rest := b[copy(b, head):]
	return b, sources.ReadFull(s.file, rest, int64(len(head)))
}

// held is a file whose bytes are in memory.
type held struct {
	*bytes.Reader
	name string
}

// Name implements sources.File.
func (h held) Name() string { return h.name }

// The memory for unpacked bytes: that of the packed bytes so many times, then twice as much again and again.
const (
	usualRatio = 4
	leastBytes = 4 << 10
)

// unpack returns the unpacked bytes of a file. It stops behind the limit.
func unpack(f sources.File, kind packed.Kind, limit int64) ([]byte, error) {
	r, err := packed.NewReader(f, kind)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, 0, min(max(usualRatio*f.Size(), leastBytes), limit+1))
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, millrace.Errorf(millrace.ErrBadSample, "the unpacked file is longer than sample_bytes, %d",
				limit)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			more := make([]byte, len(b), min(2*int64(cap(b)), limit+1))
			copy(more, b)
			b = more
		}
	}
}

// withoutPacking returns a name without the ending of a packing that is read.
func withoutPacking(name string) string {
	ending := path.Ext(name)
	if slices.Contains([]string{".gz", ".bgz", ".zst", ".zstd", ".bz2", ".xz"}, strings.ToLower(ending)) {
		return strings.TrimSuffix(name, ending)
	}
	return name
}
