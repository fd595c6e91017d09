package identity

import (
	"encoding/binary"
	"maps"
	"slices"

	"millrace"
)

// Table has the remembered entries of the files of one directory, by name. The zero value is empty.
type Table struct {
	entries map[string]Entry
}

// Entry has the remembered facts of one shard.
type Entry struct {
	Digest millrace.Digest // of its ends; the other facts are of the shard with this digest
	Sample uint64          // hash of some blocks in its middle; 0: none was taken
	Seen   []Seen          // newest first
}

// Seen is an identity under which a shard was known to have this content. Files are the shard's and its companions'.
type Seen struct {
	Host  string
	Files []File
}

// mostSeen bounds the identities that are kept of a shard: an index directory may be shared by several hosts, each of
// which has a copy of the files.
const mostSeen = 8

// Find returns the entry of a shard, false if there is none with this digest.
func (t *Table) Find(name string, digest millrace.Digest) (Entry, bool) {
	e, ok := t.entries[name]
	return e, ok && e.Digest == digest
}

// Add remembers an identity of a shard in front of earlier ones of the same digest, and reports whether it is new.
func (t *Table) Add(name string, digest millrace.Digest, sample uint64, seen Seen) bool {
	e, ok := t.entries[name]
	if !ok || e.Digest != digest {
		e = Entry{Digest: digest}
	}
	if e.Knows(seen.Files) && (sample == 0 || e.Sample == sample) {
		return false
	}
	if sample != 0 {
		e.Sample = sample
	}
	e.Seen = slices.DeleteFunc(slices.Clone(e.Seen), func(s Seen) bool { return s.Host == seen.Host })
	e.Seen = slices.Insert(e.Seen, 0, seen)
	e.Seen = e.Seen[:min(len(e.Seen), mostSeen)]
	if t.entries == nil {
		t.entries = make(map[string]Entry)
	}
	t.entries[name] = e
	return true
}

// Knows reports whether the shard was seen with exactly these files, on any host.
func (e Entry) Knows(files []File) bool {
	return slices.ContainsFunc(e.Seen, func(s Seen) bool {
		return slices.EqualFunc(s.Files, files, File.EqualsStored)
	})
}

// On returns the newest identity on one host.
func (e Entry) On(host string) ([]File, bool) {
	for _, s := range e.Seen {
		if s.Host == host {
			return s.Files, true
		}
	}
	return nil, false
}

const tableMagic = "MRFILES1"

// Encode returns the table as bytes: equal tables give equal bytes.
func (t *Table) Encode() []byte {
	out := []byte(tableMagic)
	text := func(s string) { out = append(binary.AppendUvarint(out, uint64(len(s))), s...) }
	out = binary.AppendUvarint(out, uint64(len(t.entries)))
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		text(name)
		out = append(out, e.Digest[:]...)
		out = binary.LittleEndian.AppendUint64(out, e.Sample)
		out = binary.AppendUvarint(out, uint64(len(e.Seen)))
		for _, s := range e.Seen {
			text(s.Host)
			out = binary.AppendUvarint(out, uint64(len(s.Files)))
			for _, f := range s.Files {
				for _, v := range [5]uint64{f.Device, f.Inode, uint64(f.Size), uint64(f.Modified), uint64(f.Changed)} {
					out = binary.LittleEndian.AppendUint64(out, v)
				}
			}
		}
	}
	return out
}

// Decode reads what Encode wrote.
func Decode(in []byte) (*Table, error) {
	d := decoder{in: in}
	if string(d.bytes(len(tableMagic))) != tableMagic {
		return nil, millrace.Errorf(
			millrace.ErrDamaged,
			"decode a table of files: it does not begin with %s",
			tableMagic,
		)
	}
	t := &Table{entries: make(map[string]Entry)}
	for range d.count() {
		name := string(d.bytes(d.count()))
		var e Entry
		copy(e.Digest[:], d.bytes(len(e.Digest)))
		e.Sample = d.word()
		for range d.count() {
			s := Seen{Host: string(d.bytes(d.count()))}
			for range d.count() {
				s.Files = append(s.Files, File{d.word(), d.word(), int64(d.word()), int64(d.word()), int64(d.word())})
			}
			e.Seen = append(e.Seen, s)
		}
		t.entries[name] = e
	}
	if d.short || len(d.in) > 0 {
		return nil, millrace.Errorf(millrace.ErrDamaged, "decode a table of files: it has the wrong length")
	}
	return t, nil
}

// decoder takes values from bytes. After the end it returns zeroes and sets short.
type decoder struct {
	in    []byte
	short bool
}

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.in) {
		d.in, d.short = nil, true
		return nil
	}
	out := d.in[:n]
	d.in = d.in[n:]
	return out
}

// count returns a number of elements that follow; each takes at least a byte.
func (d *decoder) count() int {
	v, n := binary.Uvarint(d.in)
	if n <= 0 || v > uint64(len(d.in)) {
		d.in, d.short = nil, true
		return 0
	}
	d.in = d.in[n:]
	return int(v)
}

func (d *decoder) word() uint64 {
	b := d.bytes(8)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
