package identity

import (
	"encoding/binary"
	"slices"

	"millrace"
)

// Entry has the remembered facts of one shard.
type Entry struct {
	Digest millrace.Digest // of its ends; the other facts are of the shard with this digest
	Sample uint64          // hash of some blocks in its middle; 0: none was taken
	Seen   []Seen          // newest first
	Facts  []Facts         // newest first
}

// Seen is an identity under which a shard was known to have this content. Files are the shard's and its companions'.
type Seen struct {
	Host  string
	Files []File
}

// Facts are the findings in a shard's head under some settings of its source.
type Facts struct {
	Settings uint64 // hash
	Count    uint64 // records; valid if Counted
	Counted  bool
	Seekable bool
}

// Bounds of an entry: an index directory may be shared by several hosts, each of which has a copy of the files, and by
// several runs.
const (
	mostSeen  = 8
	mostFacts = 4
)

// Add remembers an identity in front of earlier ones, and reports whether it is new. A sample of 0 leaves the one that
// is there.
func (e *Entry) Add(sample uint64, seen Seen) bool {
	if e.IsSeen(seen) && (sample == 0 || e.Sample == sample) {
		return false
	}
	if sample != 0 {
		e.Sample = sample
	}
	e.Seen = slices.DeleteFunc(slices.Clone(e.Seen), func(s Seen) bool { return s.Host == seen.Host })
	e.Seen = slices.Insert(e.Seen, 0, seen)
	e.Seen = e.Seen[:min(len(e.Seen), mostSeen)]
	return true
}

// AddFacts remembers facts in front of earlier ones, and reports whether they are new.
func (e *Entry) AddFacts(facts Facts) bool {
	if was, ok := e.FactsOf(facts.Settings); ok && was == facts {
		return false
	}
	e.Facts = slices.DeleteFunc(slices.Clone(e.Facts), func(f Facts) bool { return f.Settings == facts.Settings })
	e.Facts = slices.Insert(e.Facts, 0, facts)
	e.Facts = e.Facts[:min(len(e.Facts), mostFacts)]
	return true
}

// FactsOf returns the facts under some settings.
func (e *Entry) FactsOf(settings uint64) (Facts, bool) {
	i := slices.IndexFunc(e.Facts, func(f Facts) bool { return f.Settings == settings })
	if i < 0 {
		return Facts{}, false
	}
	return e.Facts[i], true
}

// Knows reports whether the shard was seen with exactly these files, on any host.
func (e *Entry) Knows(files []File) bool {
	return slices.ContainsFunc(e.Seen, func(s Seen) bool {
		return slices.EqualFunc(s.Files, files, File.EqualsStored)
	})
}

// KnowsTimes reports whether the shard was seen, on any host, with files of these sizes and times. Numbers of inodes do
// not matter.
func (e *Entry) KnowsTimes(files []File) bool {
	return slices.ContainsFunc(e.Seen, func(s Seen) bool {
		return slices.EqualFunc(s.Files, files, File.IsRenumbered)
	})
}

// IsSeen reports whether the shard was seen on this host with exactly these files, on the same devices.
func (e *Entry) IsSeen(seen Seen) bool {
	return slices.ContainsFunc(e.Seen, func(s Seen) bool {
		return s.Host == seen.Host && slices.Equal(s.Files, seen.Files)
	})
}

// On returns the newest identity on one host.
func (e *Entry) On(host string) ([]File, bool) {
	for _, s := range e.Seen {
		if s.Host == host {
			return s.Files, true
		}
	}
	return nil, false
}

const entryVersion = 1

// Encode returns the entry as bytes: equal entries give equal bytes.
func (e *Entry) Encode() []byte {
	out := append(make([]byte, 0, 128), entryVersion)
	out = append(out, e.Digest[:]...)
	out = binary.LittleEndian.AppendUint64(out, e.Sample)
	out = binary.AppendUvarint(out, uint64(len(e.Seen)))
	for _, s := range e.Seen {
		out = append(binary.AppendUvarint(out, uint64(len(s.Host))), s.Host...)
		out = binary.AppendUvarint(out, uint64(len(s.Files)))
		for _, f := range s.Files {
			for _, v := range [5]uint64{f.Device, f.Inode, uint64(f.Size), uint64(f.Modified), uint64(f.Changed)} {
				out = binary.LittleEndian.AppendUint64(out, v)
			}
		}
	}
	out = binary.AppendUvarint(out, uint64(len(e.Facts)))
	for _, f := range e.Facts {
		out = binary.LittleEndian.AppendUint64(out, f.Settings)
		out = binary.LittleEndian.AppendUint64(out, f.Count)
		out = append(out, flag(f.Counted)|flag(f.Seekable)<<1)
	}
	return out
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// Decode reads what Encode wrote.
func Decode(in []byte) (*Entry, error) {
	d := decoder{in: in}
	if v := d.bytes(1); v == nil || v[0] != entryVersion {
		return nil, millrace.Errorf(
			millrace.ErrDamaged,
			"decode the memory of a file: want version %d",
			entryVersion,
		)
	}
	e := d.entry()
	for range d.count() {
		e.Facts = append(e.Facts, d.facts())
	}
	if d.short || len(d.in) > 0 {
		return nil, millrace.Errorf(millrace.ErrDamaged, "decode the memory of a file: it has the wrong length")
	}
	return &e, nil
}

const tableMagic = "MRFILES1"

// DecodeTable reads a table of an earlier release: the entries of the files of one directory, by name.
func DecodeTable(in []byte) (map[string]Entry, error) {
	d := decoder{in: in}
	if string(d.bytes(len(tableMagic))) != tableMagic {
		return nil, millrace.Errorf(
			millrace.ErrDamaged,
			"decode a table of files: it does not begin with %s",
			tableMagic,
		)
	}
	out := make(map[string]Entry)
	for range d.count() {
		name := string(d.bytes(d.count()))
		out[name] = d.entry()
	}
	if d.short || len(d.in) > 0 {
		return nil, millrace.Errorf(millrace.ErrDamaged, "decode a table of files: it has the wrong length")
	}
	return out, nil
}

// decoder takes values from bytes. After the end it returns zeroes and sets short.
type decoder struct {
	in    []byte
	short bool
}

// entry takes an entry without facts.
func (d *decoder) entry() (e Entry) {
	copy(e.Digest[:], d.bytes(len(e.Digest)))
	e.Sample = d.word()
	for range d.count() {
		s := Seen{Host: string(d.bytes(d.count()))}
		for range d.count() {
			s.Files = append(s.Files, File{d.word(), d.word(), int64(d.word()), int64(d.word()), int64(d.word())})
		}
		e.Seen = append(e.Seen, s)
	}
	return e
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

// Match reads an encoded entry without decoding it: the digest and the facts under some settings, if the shard was seen
// on this host with exactly these files, on the same devices.
func Match(in []byte, seen Seen, settings uint64) (digest millrace.Digest, facts Facts, ok bool) {
	d := decoder{in: in}
	if v := d.bytes(1); v == nil || v[0] != entryVersion {
		return digest, facts, false
	}
	copy(digest[:], d.bytes(len(digest)))
	d.word()
	same := false
	for range d.count() {
		host := string(d.bytes(d.count())) == seen.Host // the conversion takes no memory
		n := d.count()
		equal := n == len(seen.Files)
		for i := range n {
			f := File{d.word(), d.word(), int64(d.word()), int64(d.word()), int64(d.word())}
			equal = equal && f == seen.Files[i]
		}
		same = same || host && equal
	}
	for range d.count() {
		f := d.facts()
		if f.Settings == settings && !ok {
			facts, ok = f, true
		}
	}
	return digest, facts, ok && same && !d.short && len(d.in) == 0
}

func (d *decoder) facts() Facts {
	f := Facts{Settings: d.word(), Count: d.word()}
	if b := d.bytes(1); b != nil {
		f.Counted, f.Seekable = b[0]&1 != 0, b[0]&2 != 0
	}
	return f
}
