// Package rows reads records that follow one another in a text file, plain or packed. The first bytes of a file
// decide how it is unpacked; its name does not.
//
// With an index of their records, three kinds of files can be read at random: plain files, BGZF files, and zstd files
// with frames of at most 4 MiB each. Other packed files only stream. Bad data inside a record makes that record bad.
// Damage to a packed file ends the shard with an error that names the byte reached.
package rows

import (
	"context"
	"errors"
	"io"

	"millrace"
	"millrace/sources"
)

// Layout is a way to write records into a text file.
type Layout struct {
	Name   string // of the format, for errors
	Noun   string // of a record, for errors
	Begins string // first characters of such a file; empty: any
	// Refuse returns an error for a file of another kind, by its first unpacked bytes; nil refuses none.
	Refuse func(f sources.File, head []byte) error
	// NewCutter returns a cutter that begins at the first byte of a file, or of a record; nil: a record is a line.
	NewCutter func(atRecord bool) Cutter
	// NewParser returns a parser of records.
	NewParser func() (Parser, error)
	// Prepare looks at the beginning of the unpacked file before records are cut; nil: it need not. It returns ErrShort
	// if it needs more, and gets at most mostHead bytes.
	Prepare func(head []byte, whole bool) error
	// Names returns the names of the fields, after Prepare; nil: records are JSON objects, which have their own.
	Names func() []string
	// Lacks returns the fields that the file lacks, after Prepare; nil: the file does not name its fields.
	Lacks func() sources.Lacks
}

// Parser takes the content out of records. It is not safe for concurrent use.
type Parser interface {
	// SetContent sets Text or Tokens, Others and Err of a record. They are valid until the next call.
	SetContent(r *sources.Record, record []byte)
}

// Cutter finds where records begin and end. It sees every byte once.
type Cutter interface {
	// Cut takes bytes up to the next border of a record, and returns their number and the border. The border None says
	// that all bytes were taken.
	Cut(b []byte) (n int, at Border, err error)
	// End returns the border at the end of the file: None, or Ends for a record that needs no end of its own.
	End() (Border, error)
}

// Border is a place between two bytes.
type Border int

// The borders.
const (
	None Border = iota
	Begins
	Ends
)

// ErrShort is the answer of Prepare if it needs more bytes.
var ErrShort = errors.New("more bytes are needed")

// The bytes at the beginning of a file that Prepare sees.
const (
	leastHead = 64 << 10
	mostHead  = 4 << 20
)

// Open reads the file's first bytes. In a BGZF or zstd file it also reads the heads of the members or frames. It stops
// at the first that cannot be a restart point. windows keeps memory of random reads for later ones; nil keeps none.
func Open(ctx context.Context, f sources.File, l Layout, windows *Windows, lim sources.Limits,
	blob []byte) (sources.Shard, error) {
	s := &shard{f: f, layout: &l, limit: lim.SampleBytes, windows: windows}
	head := make([]byte, min(headBytes, f.Size()))
	if err := sources.ReadFull(f, head, 0); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var x *index
	var err error
	if blob == nil {
		s.kind, s.points, err = l.inspect(f, head)
	} else if x, err = openIndex(f, blob); err == nil {
		s.index, s.kind = x, x.kind
		s.points, err = x.pointsOf(f)
	}
	if err == nil && l.Prepare != nil {
		err = s.prepare(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// prepare passes the beginning of the file to the layout.
func (s *shard) prepare(ctx context.Context) error {
	st, err := s.open(ctx, 0)
	if err != nil {
		return err
	}
	defer st.close()
	var head []byte
	for size := leastHead; ; size = mostHead {
		had := len(head)
		head = append(head, make([]byte, size-had)...)
		n, err := io.ReadFull(st, head[had:])
		head = head[:had+n]
		whole := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !whole {
			return err
		}
		if err := s.layout.Prepare(head, whole); !errors.Is(err, ErrShort) {
			return err
		}
		if whole || size == mostHead {
			return millrace.Errorf(
				millrace.ErrDamaged,
				"open %s: %w",
				s.f.Name(),
				sources.Limited("write the file again with a shorter one, or copy it again if it is damaged",
					"its first %s does not end within %d bytes", s.layout.Noun, mostHead),
			)
		}
	}
}
