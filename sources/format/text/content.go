package text

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/packed"
)

// headBytes is the number of first bytes of a file that are read at once. They show how the file is packed; most files
// have no more.
const headBytes = 1 << 20

// content returns the bytes of the file, unpacked. A file that is too long is millrace.ErrBadSample, before memory is
// taken for it.
func (s *shard) content(ctx context.Context) ([]byte, error) {
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
		return unpack(ctx, file, kind, s.limit)
	}
	switch {
	case size > s.limit:
		return nil, millrace.Errorf(millrace.ErrBadSample, "the file is longer than sample_bytes, %d", s.limit)
	case int64(len(head)) == size:
		return head, nil
	}
	if err := sources.AskRoom(ctx, size); err != nil {
		return nil, err
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

// The memory for unpacked bytes begins at usualRatio times the packed bytes, and doubles when it is full.
const (
	usualRatio = 4
	leastBytes = 4 << 10
)

// unpack returns the unpacked bytes of a file. It stops behind the limit.
func unpack(ctx context.Context, f sources.File, kind packed.Kind, limit int64) ([]byte, error) {
	r, err := packed.NewReader(f, kind)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b []byte
	for room := max(usualRatio*f.Size(), leastBytes); ; room *= 2 {
		if room > sources.LargeBytes {
			if err := sources.AskRoom(ctx, limit); err != nil {
				return nil, err
			}
		}
		b = append(make([]byte, 0, min(room, limit+1)), b...)
		end, err := fill(r, &b)
		switch {
		case int64(len(b)) > limit:
			return nil, millrace.Errorf(millrace.ErrBadSample, "the unpacked file is longer than sample_bytes, %d",
				limit)
		case err != nil || end:
			return b, err
		}
	}
}

// fill reads into the room behind some bytes, and reports whether the reader came to its end.
func fill(r io.Reader, b *[]byte) (end bool, err error) {
	n, err := io.ReadFull(r, (*b)[len(*b):cap(*b)])
	*b = (*b)[:len(*b)+n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true, nil
	}
	return false, err
}

// withoutPacking returns a name without the ending of a packing that is read.
func withoutPacking(name string) string {
	ending := path.Ext(name)
	if slices.Contains([]string{".gz", ".bgz", ".zst", ".zstd", ".bz2", ".xz"}, strings.ToLower(ending)) {
		return strings.TrimSuffix(name, ending)
	}
	return name
}
