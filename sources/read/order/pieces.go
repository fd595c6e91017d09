package order

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"millrace"
)

// Pieces has the number of pieces of each document of one shard. A document is cut into pieces of a fixed number of
// tokens and a rest; a document without tokens has one piece. Only documents with several pieces take memory: 8 bytes
// each. It is read-only once it is complete.
type Pieces struct {
	records uint64
	long    []uint32 // records with several pieces, ascending
	extra   []uint32 // pieces beyond the first of these records, summed up to and with each
}

// PieceCounter counts the pieces of one shard, record by record.
type PieceCounter struct {
	tokens uint64 // of a piece
	out    Pieces
}

// NewPieceCounter returns a counter for pieces of `tokens` tokens.
func NewPieceCounter(tokens uint32) *PieceCounter { return &PieceCounter{tokens: uint64(tokens)} }

// Add counts the next record, which has `tokens` tokens. Its error wraps millrace.ErrInvalid: a shard has at most
// 2^32-1 records, and at most 2^32-1 pieces beyond the first of each.
func (c *PieceCounter) Add(tokens uint32) error {
	p := &c.out
	record := p.records
	p.records++
	if uint64(tokens) <= c.tokens {
		return nil
	}
	sum := p.extraBefore(len(p.long)) + (uint64(tokens)-1)/c.tokens
	if record > math.MaxUint32 || sum > math.MaxUint32 {
		return millrace.Errorf(
			millrace.ErrInvalid,
			"count the pieces of record %d: a shard can have 2^32 pieces: "+
				"divide the file, or set long_documents: consecutive",
			record,
		)
	}
	p.long, p.extra = append(p.long, uint32(record)), append(p.extra, uint32(sum))
	return nil
}

// AddRun counts the next records as Add does. Each has `tokens` tokens.
func (c *PieceCounter) AddRun(tokens uint32, records uint64) error {
	if uint64(tokens) <= c.tokens {
		c.out.records += records
		return nil
	}
	for range records {
		if err := c.Add(tokens); err != nil {
			return err
		}
	}
	return nil
}

// Pieces returns the counts of the records added so far.
func (c *PieceCounter) Pieces() Pieces {
	return Pieces{c.out.records, slices.Clip(c.out.long), slices.Clip(c.out.extra)}
}

// Count returns the pieces of the shard.
func (p *Pieces) Count() uint64 { return p.records + p.extraBefore(len(p.long)) }

// Records returns the records of the shard.
func (p *Pieces) Records() uint64 { return p.records }

// extraBefore returns the pieces beyond the first of the first n long documents.
func (p *Pieces) extraBefore(n int) uint64 {
	if n == 0 {
		return 0
	}
	return uint64(p.extra[n-1])
}

// first returns the number of the first piece of long document i.
func (p *Pieces) first(i int) uint64 { return uint64(p.long[i]) + p.extraBefore(i) }

// locate returns the record that holds piece x of the shard, and the number of the piece in its document.
func (p *Pieces) locate(x uint64) (record, piece uint64) {
	i := sort.Search(len(p.long), func(i int) bool { return p.first(i) > x }) - 1
	if i < 0 {
		return x, 0
	}
	if at := x - p.first(i); at <= p.extraBefore(i+1)-p.extraBefore(i) {
		return uint64(p.long[i]), at
	}
	return x - p.extraBefore(i+1), 0
}

// of returns the number of a record's first piece in the shard, and its pieces.
func (p *Pieces) of(record uint64) (first, n uint64) {
	i := sort.Search(len(p.long), func(i int) bool { return uint64(p.long[i]) >= record })
	first, n = record+p.extraBefore(i), 1
	if i < len(p.long) && uint64(p.long[i]) == record {
		n += p.extraBefore(i+1) - p.extraBefore(i)
	}
	return first, n
}

// Encode returns the bytes of the counts for the index store: the records, then for each long document the records
// since the one before and its pieces beyond the first, all as varints.
func (p *Pieces) Encode() []byte {
	out := binary.AppendUvarint(nil, p.records)
	next := uint64(0)
	for i, r := range p.long {
		out = binary.AppendUvarint(out, uint64(r)-next)
		out = binary.AppendUvarint(out, p.extraBefore(i+1)-p.extraBefore(i))
		next = uint64(r) + 1
	}
	return out
}

// DecodePieces reads the bytes that Encode wrote. Its error wraps millrace.ErrDamaged.
func DecodePieces(in []byte) (p Pieces, err error) {
	damaged := millrace.Errorf(
		millrace.ErrDamaged,
		"decode %d bytes of piece counts: they do not fit together",
		len(in),
	)
	take := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(in)
		if n <= 0 {
			return 0, false
		}
		in = in[n:]
		return v, true
	}
	var ok bool
	if p.records, ok = take(); !ok {
		return p, damaged
	}
	next, sum := uint64(0), uint64(0)
	for len(in) > 0 {
		gap, a := take()
		extra, b := take()
		record := next + gap
		next, sum = record+1, sum+extra
		if !a || !b || extra == 0 || gap >= p.records || record >= p.records ||
			max(record, extra, sum) > math.MaxUint32 {
			return p, damaged
		}
		p.long, p.extra = append(p.long, uint32(record)), append(p.extra, uint32(sum))
	}
	p.long, p.extra = slices.Clip(p.long), slices.Clip(p.extra)
	return p, nil
}
