package rows

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"millrace/sources"
)

// source counts the bytes that a decoder took, so that an error can name the place of damage. It distinguishes a
// failing disk from damaged bytes.
type source struct {
	buf *bufio.Reader
	raw *sources.Reader
	err error // of the file itself
}

// newSource returns the source of a stream with this memory.
func newSource(raw *sources.Reader, m *scanMemory) *source {
	s := &source{raw: raw}
	if m.input == nil {
		m.input = bufio.NewReaderSize(nil, 64<<10)
	}
	m.input.Reset(s)
	s.buf = m.input
	return s
}

// Read passes bytes from the file to the buffer.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.raw.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// offset returns the byte of the file that the decoder has reached.
func (s *source) offset() int64 { return s.raw.Offset() - int64(s.buf.Buffered()) }

// fail returns the user's error for a decoder's error.
func (s *source) fail(f sources.File, err error) error {
	switch {
	case s.err != nil:
		return s.err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the file ends inside its compressed data")
	}
	return damaged(f, s.offset(), err)
}

// gzipStream reads all members of a gzip file. Zero bytes behind a member are padding of tapes. Other bytes there are
// damage.
type gzipStream struct {
	f   sources.File
	src *source
	gz  *gzip.Reader // nil between two members
	old *gzip.Reader
}

func newGzipStream(f sources.File, src *source) *gzipStream { return &gzipStream{f: f, src: src} }

// Read implements io.Reader.
func (g *gzipStream) Read(p []byte) (int, error) {
	for {
		if g.gz == nil {
			if err := g.member(); err != nil {
				return 0, err
			}
		}
		n, err := g.gz.Read(p)
		switch {
		case errors.Is(err, io.EOF):
			g.old, g.gz = g.gz, nil
		case err != nil:
			return n, g.src.fail(g.f, err)
		}
		if n > 0 {
			return n, nil
		}
	}
}

// member goes to the next member, or returns io.EOF.
func (g *gzipStream) member() error {
	for g.old != nil {
		b, err := g.src.buf.ReadByte()
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		if err != nil {
			return g.src.fail(g.f, err)
		}
		if b != 0 {
			if err := g.src.buf.UnreadByte(); err != nil {
				return g.src.fail(g.f, err)
			}
			break
		}
	}
	gz := g.old
	var err error
	if gz == nil {
		gz, err = gzip.NewReader(g.src.buf)
	} else {
		err = gz.Reset(g.src.buf)
	}
	if err != nil {
		return g.src.fail(g.f, err)
	}
	gz.Multistream(false)
	g.gz = gz
	return nil
}

// zstdStream reads all frames of a zstd file.
type zstdStream struct {
	f      sources.File
	src    *source
	walk   *zstdWalk
	held   []byte // the first bytes of a part that the walk wants whole
	skip   int64
	unpack *unpacker // owns the decoder
	widest int64     // bytes of the largest window so far
}

// newZstdStream returns a stream that uses the unpacker's decoder until end.
func newZstdStream(f sources.File, src *source, u *unpacker) (*zstdStream, error) {
	z := &zstdStream{f: f, src: src, walk: newZstdWalk(), unpack: u}
	if err := u.dec.Reset(zstdInput{z}); err != nil {
		return nil, fmt.Errorf("decompress %s: %w", f.Name(), err)
	}
	return z, nil
}

// end frees the decoder for other streams, or its memory if that is large.
func (z *zstdStream) end() {
	if z.widest > mostSlide || z.unpack.dec.Reset(nil) != nil {
		z.unpack.close()
	}
}

// Read implements io.Reader.
func (z *zstdStream) Read(p []byte) (int, error) {
	n, err := z.unpack.dec.Read(p)
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, z.src.fail(z.f, err)
	case !z.walk.between() || len(z.held) > 0 || z.skip > 0:
		return n, z.src.fail(z.f, io.ErrUnexpectedEOF)
	}
	return n, io.EOF
}

// zstdInput is the decoder's input. The walk sees every byte that passes.
type zstdInput struct{ z *zstdStream }

// Read implements io.Reader.
func (in zstdInput) Read(p []byte) (int, error) {
	n, err := in.z.src.buf.Read(p)
	if bad := in.z.follow(p[:n]); bad != nil {
		return n, bad
	}
	return n, err
}

func (z *zstdStream) follow(b []byte) error {
	for len(b) > 0 {
		if n := min(z.skip, int64(len(b))); n > 0 {
			z.skip -= n
			b = b[n:]
			continue
		}
		n := min(z.walk.want-len(z.held), len(b))
		z.held = append(z.held, b[:n]...)
		b = b[n:]
		for len(z.held) == z.walk.want {
			skip, err := z.walk.see(z.held)
			if err != nil {
				return err
			}
			z.widest = max(z.widest, z.walk.windowBytes)
			if skip < 0 {
				continue // the same bytes begin the next part
			}
			z.held, z.skip = z.held[:0], skip
		}
	}
	return nil
}
