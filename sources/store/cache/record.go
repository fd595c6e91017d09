package cache

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/zeebo/xxh3"

	"millrace"
	"millrace/sources"
)

// The kinds of records in an entry. A document's kind is the width of its ids in bytes.
const (
	kindBad     = 0
	kindMissing = 1 // a bad record without a field
	kindNarrow  = 2
	kindWide    = 4
	flagTooLong = 8 // beside the kind of a document: Record.TooLong
)

// errDamaged is the error of an entry whose bytes are not the written ones.
var errDamaged = errors.New("its bytes are not the written ones")

// checksum returns the hash of a record's bytes. It is valid for this record of this entry alone.
func checksum(salt, number uint64, b []byte) uint64 {
	return xxh3.HashSeed(b, salt^number*0x9E3779B97F4A7C15)
}

// appendRecord appends the bytes of a record. tokens is its document; a bad record has none.
func appendRecord(dst []byte, r *sources.Record, tokens []uint32) ([]byte, error) {
	kind := byte(kindNarrow)
	var missing *sources.MissingError
	switch {
	case errors.As(r.Err, &missing):
		kind = kindMissing
	case r.Err != nil:
		kind = kindBad
	}
	for _, id := range tokens {
		if id > math.MaxUint16 {
			kind = kindWide
			break
		}
	}
	flags := byte(0)
	if r.TooLong && r.Err == nil {
		flags = flagTooLong
	}
	dst = append(dst, kind|flags)
	dst = binary.AppendUvarint(dst, uint64(r.Offset+1))
	dst = binary.AppendUvarint(dst, uint64(r.Raw))
	switch kind {
	case kindBad:
		return append(dst, r.Err.Error()...), nil
	case kindMissing:
		for _, text := range []string{missing.Field, string(missing.How), missing.Has} {
			dst = appendText(dst, text)
		}
		return appendValues(dst, r.Others)
	}
	dst = binary.AppendUvarint(dst, uint64(r.MadeOf))
	var err error
	if dst, err = appendValues(dst, r.Others); err != nil {
		return nil, err
	}
	for _, id := range tokens {
		if kind == kindNarrow {
			dst = binary.LittleEndian.AppendUint16(dst, uint16(id))
		} else {
			dst = binary.LittleEndian.AppendUint32(dst, id)
		}
	}
	return dst, nil
}

// decoded is the memory of one decoded record.
type decoded struct {
	tokens []uint32
	others []any
}

// record decodes the bytes of a record into memory that the next call uses again.
func (d *decoded) record(number uint64, b []byte) (sources.Record, error) {
	p := parser{b: b}
	head := p.take(1)
	r := sources.Record{Number: number, Offset: int64(p.uvarint()) - 1, Raw: int64(p.uvarint())}
	if p.bad {
		return r, errDamaged
	}
	kind, tooLong := head[0]&^flagTooLong, head[0]&flagTooLong != 0
	switch {
	case tooLong && kind != kindNarrow && kind != kindWide:
		return r, errDamaged
	case kind == kindBad:
		r.Err = millrace.Errorf(millrace.ErrBadSample, "%s", p.b)
		return r, nil
	case kind == kindMissing:
		missing := &sources.MissingError{Field: p.text(), How: sources.Missing(p.text()), Has: p.text()}
		r.Err, r.Others = missing, d.values(&p)
		if p.bad || len(p.b) > 0 {
			return r, errDamaged
		}
		return r, nil
	case kind != kindNarrow && kind != kindWide:
		return r, errDamaged
	}
	r.Made, r.Text = true, nil
	r.TooLong = tooLong
	r.MadeOf = int64(p.uvarint())
	r.Others = d.values(&p)
	if p.bad || len(p.b)%int(kind) != 0 {
		return r, errDamaged
	}
	d.tokens = appendTokens(d.tokens[:0], p.b, kind)
	r.Tokens = d.tokens
	return r, nil
}

// values reads the values of a record, nil if it has none.
func (d *decoded) values(p *parser) []any {
	n := p.count()
	d.others = d.others[:0]
	for range n {
		d.others = append(d.others, p.value(0))
	}
	if n == 0 {
		return nil
	}
	return d.others
}
