package webdataset

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
)

// An index is
//
//	"MRwd", u32 version
//	u64 bytes of the file, u64 groups
//	pages × (u64 first block of its first group, u64 first byte of its numbers)
//	numbers: for each group, the uvarint blocks between it and the one before in its page, and the uvarint of its own
//
// All numbers are little-endian, and blocks have 512 bytes. An index takes about two bytes a group. It is used in its
// encoded form.
const (
	indexMagic   = "MRwd"
	indexVersion = 1
	indexHead    = 24
	indexPage    = 16
	pageGroups   = 64
)

// index has the places of an archive's groups. Its zero value has none.
type index struct {
	count   uint64
	blocks  uint64 // of the file, the last one may be cut
	size    int64  // of the file
	pages   []byte
	numbers []byte
}

var _ extents.Table = (*index)(nil)

// builder collects groups in the order of the archive.
type builder struct {
	count   uint64
	last    uint64 // block behind the group before
	pages   []byte
	numbers []byte
}

func (b *builder) add(start, end int64) {
	first, behind := uint64(start)/block, (uint64(end)+block-1)/block
	if b.count%pageGroups == 0 {
		b.pages = binary.LittleEndian.AppendUint64(b.pages, first)
		b.pages = binary.LittleEndian.AppendUint64(b.pages, uint64(len(b.numbers)))
		b.last = first
	}
	b.numbers = binary.AppendUvarint(b.numbers, first-b.last)
	b.numbers = binary.AppendUvarint(b.numbers, behind-first)
	b.last = behind
	b.count++
}

func (b *builder) encode(size int64) []byte {
	out := append(make([]byte, 0, indexHead+len(b.pages)+len(b.numbers)), indexMagic...)
	out = binary.LittleEndian.AppendUint32(out, indexVersion)
	out = binary.LittleEndian.AppendUint64(out, uint64(size))
	out = binary.LittleEndian.AppendUint64(out, b.count)
	return append(append(out, b.pages...), b.numbers...)
}

// openIndex checks that a blob can belong to f. The error of an index that does not fit is ErrDamaged, so that it is
// made again. Its groups ascend and are inside the file.
func openIndex(f sources.File, blob []byte) (*index, error) {
	le := binary.LittleEndian
	unfit := func(what string) (*index, error) {
		return nil, millrace.Errorf(millrace.ErrDamaged, "open index of %s: %s", f.Name(), what)
	}
	if len(blob) < indexHead || string(blob[:4]) != indexMagic || le.Uint32(blob[4:]) != indexVersion {
		return unfit("not an index of an archive of this version")
	}
	if le.Uint64(blob[8:]) != uint64(f.Size()) {
		return unfit("made for a file of another size")
	}
	x := &index{count: le.Uint64(blob[16:]), blocks: (uint64(f.Size()) + block - 1) / block, size: f.Size()}
	rest := blob[indexHead:]
	pages := x.count/pageGroups + min(x.count%pageGroups, 1)
	if x.count > uint64(len(blob)) || pages > uint64(len(rest))/indexPage {
		return unfit("it does not fit together")
	}
	x.pages, x.numbers = rest[:pages*indexPage], rest[pages*indexPage:]
	last, at := uint64(0), 0
	for n := range x.count {
		if n%pageGroups == 0 {
			page := x.pages[n/pageGroups*indexPage:]
			if le.Uint64(page) < last || le.Uint64(page[8:]) != uint64(at) {
				return unfit("a page is out of place")
			}
			last = le.Uint64(page)
		}
		gap, first := binary.Uvarint(x.numbers[at:])
		length, second := binary.Uvarint(x.numbers[at+max(first, 0):])
		if first <= 0 || second <= 0 || last > x.blocks || gap > x.blocks-last || length > x.blocks-last-gap {
			return unfit("a group is out of place")
		}
		last, at = last+gap+length, at+first+second
	}
	return x, nil
}

// Count implements extents.Table.
func (x *index) Count() uint64 { return x.count }

// Extent implements extents.Table.
func (x *index) Extent(n uint64) (start, end int64) {
	page := x.pages[n/pageGroups*indexPage:]
	at := binary.LittleEndian.Uint64(page)
	numbers := x.numbers[binary.LittleEndian.Uint64(page[8:]):]
	for range n%pageGroups + 1 {
		gap, first := binary.Uvarint(numbers)
		length, second := binary.Uvarint(numbers[first:])
		start, at = int64(at+gap), at+gap+length
		numbers = numbers[first+second:]
	}
	return start * block, min(int64(at)*block, x.size)
}

// Memory implements extents.Table.
func (x *index) Memory() int64 { return int64(len(x.pages) + len(x.numbers)) }

// mostEnergon bounds the bytes of a .tar.idx.
const mostEnergon = 1 << 30

// energonIndex returns the index that Energon keeps beside an archive: a u64 place of each group, and the end of the
// last one. It returns nil if there is none, or if its places are no places of headers. An index that leaves groups out
// or names places after the archive's end is an error. Each read of a group compares it with the archive.
func (ff Format) energonIndex(ctx context.Context, f sources.File) (*index, error) {
	idx, err := ff.fs.Open(f.Name() + ".idx")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer idx.Close()
	if idx.Size() < 8 || idx.Size()%8 != 0 || idx.Size() > mostEnergon {
		return nil, nil
	}
	b := &builder{}
	last := uint64(0)
	for at := int64(0); at < idx.Size(); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		part := make([]byte, min(idx.Size()-at, headRead))
		if err := sources.ReadFull(idx, part, at); err != nil {
			return nil, err
		}
		for ; len(part) > 0; part, at = part[8:], at+8 {
			place := binary.LittleEndian.Uint64(part)
			if place > uint64(f.Size()) {
				return nil, millrace.Errorf(millrace.ErrDamaged,
					"read %s: %s has a group at byte %d, and the archive ends at byte %d; copy both again, or remove "+
						"the index", f.Name(), idx.Name(), place, f.Size())
			}
			if place%block != 0 || at > 0 && place <= last {
				return nil, nil
			}
			if at > 0 {
				b.add(int64(last), int64(place))
			}
			last = place
		}
	}
	if err := endsAt(f, idx.Name(), int64(last)); err != nil {
		return nil, err
	}
	return openIndex(f, b.encode(f.Size()))
}

// endsAt checks that the archive ends where its index ends.
func endsAt(f sources.File, idx string, at int64) error {
	w := newWalk(f, at, f.Size())
	w.along, w.whole = block, true
	m, ok, err := w.next()
	if err == nil && ok {
		err = millrace.Errorf(millrace.ErrDamaged, "read %s: %s ends at byte %d, and the member %s follows; copy both "+
			"again, or remove the index", f.Name(), idx, at, m.name)
	}
	return err
}
