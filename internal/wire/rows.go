package wire

import (
	"encoding/binary"
	"iter"
	"slices"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/proto"
)

// AppendIDs appends the ids of a row to the tokens of a reply: 32 bits each if the row is wide, 16 otherwise.
func AppendIDs(dst []byte, ids []uint32, isWide bool) []byte {
	if isWide {
		return append(dst, tokenid.Bytes(ids)...)
	}
	n := len(dst)
	dst = slices.Grow(dst, 2*len(ids))[:n+2*len(ids)]
	out := dst[n:]
	for i, id := range ids {
		binary.LittleEndian.PutUint16(out[2*i:2*i+2], uint16(id))
	}
	return dst
}

// SetWide notes whether the last row of a reply is wide.
func SetWide(r *proto.FetchReply, isWide bool) {
	if isWide || r.Wide != nil {
		r.Wide = append(append(r.Wide, make([]bool, len(r.Row)-1-len(r.Wide))...), isWide)
	}
}

// SetFields notes the fields of the last row of a reply.
func SetFields(r *proto.FetchReply, fields string) {
	if fields != "" || r.Fields != nil {
		r.Fields = append(append(r.Fields, make([]string, len(r.Row)-1-len(r.Fields))...), fields)
	}
}

// Row is a row of a reply, or a piece of one.
type Row struct {
	Number uint32
	Count  int    // ids in this reply
	IsCut  bool   // it continues in the next reply
	IsWide bool   // its ids have 32 bits each, not 16
	IDs    []byte // little-endian; nil: they are in the arena
	Fields string // of its record, a JSON object; empty: none
}

// Rows returns the rows of a reply in their order. The ids are in the arena if the reply has none and inArena is set.
// An error is the last element: the reply has other lengths than it says.
func Rows(r *proto.FetchReply, inArena bool) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		rows, fields, widths := len(r.Row), len(r.Fields), len(r.Wide)
		if rows != len(r.Count) || fields > 0 && fields != rows || widths > 0 && widths != rows {
			yield(Row{}, millrace.Errorf(millrace.ErrMismatch, "%d rows, %d counts, fields of %d rows and widths of %d",
				rows, len(r.Count), fields, widths))
			return
		}
		rest := r.Tokens
		for k, number := range r.Row {
			row := Row{Number: number, Count: int(r.Count[k]), IsCut: r.Cut && k == rows-1}
			row.IsWide = len(r.Wide) > 0 && r.Wide[k]
			if len(r.Fields) > 0 {
				row.Fields = r.Fields[k]
			}
			if !inArena || len(r.Tokens) > 0 {
				n := row.bytes()
				if n > len(rest) {
					yield(Row{}, millrace.Errorf(millrace.ErrMismatch, "%d tokens of row %d in %d bytes", row.Count,
						number, len(rest)))
					return
				}
				row.IDs, rest = rest[:n], rest[n:]
			}
			if !yield(row, nil) {
				return
			}
		}
		if len(rest) > 0 {
			yield(Row{}, millrace.Errorf(millrace.ErrMismatch, "%d bytes after the last row", len(rest)))
		}
	}
}

// bytes returns the size of the row's ids in a message.
func (r *Row) bytes() int {
	if r.IsWide {
		return 4 * r.Count
	}
	return 2 * r.Count
}
