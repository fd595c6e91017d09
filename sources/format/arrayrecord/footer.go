package arrayrecord

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"millrace"
	"millrace/sources"
)

// postMagic is in the record at the beginning of the last block.
const postMagic = 0x71930e704fdae05e

// mostEntry is the largest number of bytes of a record of the footer.
const mostEntry = 4 << 10

// footer has the places of the chunks, in a chunk of its own: a record of counts, and a record for each chunk.
type footer struct {
	file    sources.File
	data    chunk
	chunks  uint64
	records uint64
}

func unfit(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrDamaged, "open %s: "+format, append([]any{f.Name()}, args...)...)
}

// openFooter reads the beginning, the last block and the footer's chunk.
func openFooter(f sources.File) (*footer, error) {
	if f.Size() < 2*blockBytes || f.Size()%blockBytes != 0 {
		return nil, unfit(f, "%d bytes are no ArrayRecord file, which has whole blocks of 64 KiB and at least two; "+
			"its writer may have ended early", f.Size())
	}
	b := &blocks{file: f}
	first, err := b.chunk(0)
	if err != nil || first.kind != 's' || len(first.data) > 0 {
		return nil, orUnfit(f, err, "it does not begin as a Riegeli file does")
	}
	last, err := b.chunk(f.Size() - blockBytes)
	if err != nil {
		return nil, orUnfit(f, err, "its last block has no postscript; its writer may have ended early")
	}
	if last.kind == 't' {
		return nil, last.refuse(f)
	}
	var u unpacker
	defer u.close()
	records, err := last.records(&u, nil, last.count) // three copies
	if err != nil || len(records) == 0 {
		return nil, orUnfit(f, err, "its postscript cannot be read: %v", err)
	}
	var at, magic uint64
	if !varints(records[0], map[protowire.Number]*uint64{1: &at, 2: &magic}) || magic != postMagic ||
		at >= uint64(f.Size()) {
		return nil, unfit(f, "its postscript has another content")
	}
	foot := &footer{file: f}
	if foot.data, err = (&blocks{file: f}).chunk(int64(at)); err != nil {
		return nil, orUnfit(f, err, "its footer cannot be read: %v", err)
	}
	if foot.data.kind == 't' {
		return nil, foot.data.refuse(f)
	}
	err = foot.each(func(n uint64, record []byte) (bool, error) { return false, foot.head(record) })
	if err != nil {
		return nil, err
	}
	if foot.data.count != foot.chunks+1 {
		return nil, unfit(f, "its footer counts %d chunks, and has %d places", foot.chunks, foot.data.count-1)
	}
	return foot, nil
}

// orUnfit returns the host's error, or that of an unfit file.
func orUnfit(f sources.File, err error, format string, args ...any) error {
	if err != nil && !sources.IsDamage(err) {
		return err
	}
	return unfit(f, format, args...)
}

// varints reads the varints of a message. Other fields are passed over.
func varints(b []byte, to map[protowire.Number]*uint64) bool {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		if v, size := protowire.ConsumeVarint(b); kind == protowire.VarintType && size >= 0 && to[n] != nil {
			*to[n] = v
		}
		if size = protowire.ConsumeFieldValue(n, kind, b); size < 0 {
			return false
		}
		b = b[size:]
	}
	return true
}

// head reads the record of counts.
func (x *footer) head(record []byte) error {
	n, kind, size := protowire.ConsumeTag(record)
	if size < 0 || n != 1 || kind != protowire.BytesType {
		return unfit(x.file, "its footer has no counts")
	}
	counts, size := protowire.ConsumeBytes(record[size:])
	version := uint64(0)
	if size < 0 || !varints(counts, map[protowire.Number]*uint64{1: &version, 2: &x.chunks, 3: &x.records}) {
		return unfit(x.file, "its footer has no counts")
	}
	if version != 1 {
		return unfit(x.file, "its footer has version %d, and 1 is read", version)
	}
	return nil
}

// each passes the records of the footer to fn, until fn returns false. It unpacks them bit by bit.
func (x *footer) each(fn func(n uint64, record []byte) (bool, error)) error {
	p, err := x.data.parts()
	if err != nil {
		return unfit(x.file, "its footer cannot be read: %v", err)
	}
	var us, uv unpacker
	defer us.close()
	defer uv.close()
	sizes, _, err := us.stream(p.packing, p.sizes)
	if err != nil {
		return unfit(x.file, "its footer cannot be read: %v", err)
	}
	values, _, err := uv.stream(p.packing, p.values)
	if err != nil {
		return unfit(x.file, "its footer cannot be read: %v", err)
	}
	from, entries := bufio.NewReader(sizes), bufio.NewReader(values)
	record := make([]byte, mostEntry)
	for n := range x.data.count {
		size, err := binary.ReadUvarint(from)
		if err != nil || size > mostEntry {
			return unfit(x.file, "its footer has no size of record %d", n)
		}
		if _, err := io.ReadFull(entries, record[:size]); err != nil {
			return unfit(x.file, "its footer ends in record %d", n)
		}
		if more, err := fn(n, record[:size]); err != nil || !more {
			return err
		}
	}
	return nil
}

// readTable reads the places of all chunks.
func readTable(ctx context.Context, f sources.File) (*table, error) {
	foot, err := openFooter(f)
	if err != nil {
		return nil, err
	}
	t, last := &table{}, int64(0)
	err = foot.each(func(n uint64, record []byte) (bool, error) {
		if n%4096 == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		if n == 0 {
			return true, nil
		}
		var at, unpacked, records uint64
		if !varints(record, map[protowire.Number]*uint64{1: &at, 2: &unpacked, 3: &records}) ||
			at <= uint64(last) || at >= uint64(foot.data.at) || records == 0 ||
			records > foot.records-t.records || unpacked > 1<<40 {
			return false, unfit(f, "its footer has a place of chunk %d that does not fit", n-1)
		}
		last = int64(at)
		t.add(last, records, unpacked)
		return true, nil
	})
	if err == nil && t.records != foot.records {
		err = unfit(f, "its footer counts %d records, and its chunks have %d", foot.records, t.records)
	}
	return t, err
}
