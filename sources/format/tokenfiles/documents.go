package tokenfiles

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/ids"
)

// readBytes is the size of one read of a file from end to end.
const readBytes = 256 << 10

// documents finds the documents of the file. It fills in the dtype if the rows beside the ids show it.
func (p *plan) documents(ctx context.Context, progress func(bytes int64)) (*ids.Builder, error) {
	switch {
	case p.format.opts.HasEOS:
		return p.byEOS(ctx, progress)
	case p.head.row > 0:
		return p.byRow(ctx)
	case p.format.beside == csvRows:
		return p.beside(ctx, p.readRows)
	case p.format.beside == ends:
		return p.beside(ctx, p.readEnds)
	}
	return nil, millrace.Errorf(millrace.ErrInvalid,
		"find the documents of %s: nothing says where they end; add `eos:` with the id that ends documents",
		p.file.Name())
}

// byRow makes each row of an array a document.
func (p *plan) byRow(ctx context.Context) (*ids.Builder, error) {
	b := &ids.Builder{}
	rows := uint64(p.layout.Size-p.layout.From) / uint64(p.layout.DType.Size) / p.head.row
	for i := range rows {
		if i%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		b.Add(p.head.row)
	}
	return b, nil
}

// byEOS ends a document behind each EOS, and the last one at the end of the file.
func (p *plan) byEOS(ctx context.Context, progress func(bytes int64)) (*ids.Builder, error) {
	b := &ids.Builder{}
	r := sources.NewReader(p.file, p.layout.From, p.layout.Size)
	r.Progress(progress)
	buf := make([]byte, min(readBytes, p.layout.Size-p.layout.From))
	length := uint64(0)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := io.ReadFull(r, buf)
		if errors.Is(err, io.EOF) || n == 0 && err == nil {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		length = p.cut(b, buf[:n], length)
	}
	if length > 0 {
		b.Add(length)
	}
	return b, nil
}

// cut adds the documents that end in buf. length is that of the open document, before and after.
func (p *plan) cut(b *ids.Builder, buf []byte, length uint64) uint64 {
	eos, size := p.format.opts.EOS, p.layout.DType.Size
	for ; len(buf) >= size; buf = buf[size:] {
		id := uint64(0)
		switch size {
		case 1:
			id = uint64(buf[0])
		case 2:
			id = uint64(binary.LittleEndian.Uint16(buf))
		case 4:
			id = uint64(binary.LittleEndian.Uint32(buf))
		default:
			id = binary.LittleEndian.Uint64(buf)
		}
		length++
		if id == uint64(eos) {
			b.Add(length)
			length = 0
		}
	}
	return length
}

// beside reads the file beside the ids, and checks that its documents cover the ids.
func (p *plan) beside(ctx context.Context, read func(context.Context, sources.File) (*ids.Builder, uint64, error)) (
	*ids.Builder, error) {
	path := p.format.companions(p.file.Name())[0]
	f, err := p.format.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, millrace.Errorf(millrace.ErrDamaged,
			"find the documents of %s: %s is not beside it: %w; copy it there, or add `eos:` with the id that ends "+
				"documents", p.file.Name(), path, err)
	}
	if err != nil {
		return nil, fmt.Errorf("find the documents of %s: %w", p.file.Name(), err)
	}
	defer f.Close()
	b, end, err := read(ctx, f)
	if err != nil {
		return nil, err
	}
	bytes := uint64(p.layout.Size - p.layout.From)
	if p.layout.DType.Size == 0 {
		name := ""
		if end > 0 && bytes%end == 0 {
			name = byWidth(int(min(bytes/end, 1<<10)))
		}
		d, ok := ids.ByName(name)
		if !ok {
			return nil, misfit(f, "its documents end at id %d, which does not fit the %d bytes of %s", end, bytes,
				p.file.Name())
		}
		p.layout.DType = d
	}
	if end != bytes/uint64(p.layout.DType.Size) {
		return nil, misfit(f, "its documents end at id %d, and %s has %d", end, p.file.Name(),
			bytes/uint64(p.layout.DType.Size))
	}
	if p.format.beside == ends {
		err = p.checkMetadata()
	}
	return b, err
}

func misfit(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "read %s: %s", f.Name(), fmt.Sprintf(format, args...))
}

// readEnds reads datatrove's index: the end of each document as u64.
func (p *plan) readEnds(ctx context.Context, f sources.File) (*ids.Builder, uint64, error) {
	if f.Size()%8 != 0 {
		return nil, 0, misfit(f, "%d bytes are no whole number of ends, which have 8 each", f.Size())
	}
	b, last := &ids.Builder{}, uint64(0)
	most := uint64(p.layout.Size) // ids of one byte
	r := sources.NewReader(f, 0, f.Size())
	buf := make([]byte, min(readBytes, f.Size()))
	for doc := 0; ; {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		n, err := io.ReadFull(r, buf)
		if errors.Is(err, io.EOF) || n == 0 && err == nil {
			return b, last, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, 0, err
		}
		for at := 0; at < n; at += 8 {
			end := binary.LittleEndian.Uint64(buf[at:])
			if end < last || end > most {
				return nil, 0, misfit(f, "document %d goes from id %d to %d, and %s has %d bytes", doc, last, end,
					p.file.Name(), p.layout.Size)
			}
			b.Add(end - last)
			last = end
			doc++
		}
	}
}
