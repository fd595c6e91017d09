package rows

import (
	"compress/bzip2"
	"errors"
	"io"

	"millrace/sources"
	"millrace/sources/format/parts/packed"
)

// bzip2Stream reads a file of bzip2.
type bzip2Stream struct {
	f   sources.File
	src *source
	r   io.Reader
}

func newBzip2Stream(f sources.File, src *source) io.Reader {
	return &bzip2Stream{f: f, src: src, r: bzip2.NewReader(src.buf)}
}

// Read implements io.Reader.
func (s *bzip2Stream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.src.fail(s.f, err)
	}
	return n, err
}

// xzStream reads a file of xz.
type xzStream struct {
	f   sources.File
	src *source
	r   io.Reader
}

func newXZStream(f sources.File, src *source) (io.Reader, error) {
	if err := packed.CheckXZ(f); err != nil {
		return nil, err
	}
	r, err := packed.NewXZ(f, src.buf)
	if err != nil {
		return nil, src.fail(f, err)
	}
	return &xzStream{f: f, src: src, r: r}, nil
}

// Read implements io.Reader.
func (s *xzStream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = s.src.fail(s.f, err)
	}
	return n, err
}
