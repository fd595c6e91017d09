package reply

import (
	"bytes"
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"millrace"
)

// Decoder decodes the replies of loaders. It has no changing state.
type Decoder struct {
	schema []byte // the message that begins each reply
}

// NewDecoder returns a decoder.
func NewDecoder() (*Decoder, error) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "index", Type: arrow.PrimitiveTypes.Uint32},
		{Name: "tokens", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Uint32)},
	}, nil)
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(schema))
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode the schema of replies: %w", err)
	}
	m, _, err := cut(out.Bytes())
	return &Decoder{schema: m.meta}, err
}

// Rows decodes one reply. It gives each row's index into the request and its tokens to keep, which may retain the
// tokens. Its error is keep's or has the mark millrace.ErrMismatch. A panic of the decoder becomes such an error.
func (d *Decoder) Rows(raw []byte, keep func(index uint32, tokens []uint32) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = millrace.Errorf(millrace.ErrMismatch, "decoder failed: %v", v)
		}
	}()
	m, raw, err := cut(raw)
	if err != nil {
		return millrace.Errorf(millrace.ErrMismatch, "decode: %v", err)
	}
	if !bytes.Equal(m.meta, d.schema) {
		return millrace.Errorf(millrace.ErrMismatch, "decode: the columns are not index and tokens")
	}
	for {
		m, raw, err = cut(raw)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return millrace.Errorf(millrace.ErrMismatch, "decode: %v", err)
		}
		c, err := m.columns()
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		if err := c.each(keep); err != nil {
			return err
		}
	}
}

// each gives the rows of one record batch to keep.
func (c columns) each(keep func(index uint32, tokens []uint32) error) error {
	for i, row := range c.index {
		from, to := c.offsets[i], c.offsets[i+1]
		if from > to || uint64(to) > uint64(len(c.values)) {
			return millrace.Errorf(millrace.ErrMismatch, "decode: tokens %d to %d of %d for row %d", from, to,
				len(c.values), row)
		}
		if err := keep(row, c.values[from:to:to]); err != nil {
			return err
		}
	}
	return nil
}
