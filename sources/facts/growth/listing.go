package growth

import (
	"encoding/binary"
	"slices"

	"golang.org/x/crypto/blake2b"

	"millrace"
	"millrace/sources/read/order"
)

// Listing is the list of a source's files, and the settings that decide its documents.
type Listing struct {
	Manifest millrace.Manifest // without the paths of its shards
	Settings []byte            // the part of the fingerprint that precedes the files
	Blocks   string            // the kind under which block tables of its shards are kept
	Piece    uint32            // tokens of the pieces that Pieces counts; 0: there are none
	Pieces   []uint64          // of each shard
}

// Blobs keeps facts by digest and kind.
type Blobs interface {
	Load(of millrace.Digest, kind string) ([]byte, bool)
	Save(of millrace.Digest, kind string, blob []byte) error
}

const kind = "listing"

// key returns the key of a listing: the source's name, the beginning of the fingerprint of its manifest, and the tokens
// of a piece.
func key(source string, files [4]byte, piece uint32) (d millrace.Digest) {
	in := append([]byte("millrace listing 1"), files[:]...)
	sum := blake2b.Sum256(append(binary.LittleEndian.AppendUint32(in, piece), source...))
	copy(d[:], sum[:])
	return d
}

// Begin returns the beginning of a manifest's fingerprint, as saved states have it.
func Begin(fingerprint millrace.Digest) (files [4]byte) {
	copy(files[:], fingerprint[:])
	return files
}

// Save keeps a listing, with its pieces and without.
func (l *Listing) Save(to Blobs) error {
	if l.Piece > 0 {
		whole := *l
		whole.Piece, whole.Pieces = 0, nil
		if err := whole.Save(to); err != nil {
			return err
		}
	}
	return to.Save(key(l.Manifest.Source, Begin(l.Manifest.Fingerprint), l.Piece), kind, l.encode())
}

// Load returns the listing that an opening of a source kept, nil if there is none. It has the numbers of pieces of
// `piece` tokens if they were counted.
func Load(from Blobs, source string, files [4]byte, piece uint32) *Listing {
	blob, ok := from.Load(key(source, files, piece), kind)
	if !ok && piece > 0 {
		return Load(from, source, files, 0)
	}
	if !ok {
		return nil
	}
	l, ok := decode(blob)
	if !ok || l.Manifest.Source != source || Begin(l.Manifest.Fingerprint) != files {
		return nil
	}
	return l
}

// encode returns the bytes of a listing: texts with their length in front, numbers as varints.
func (l *Listing) encode() []byte {
	m := &l.Manifest
	var out []byte
	text := func(s string) { out = append(binary.AppendUvarint(out, uint64(len(s))), s...) }
	for _, s := range []string{m.Source, m.Format, string(m.Shuffle), string(l.Settings), l.Blocks} {
		text(s)
	}
	out = append(out, m.Fingerprint[:]...)
	out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(l.Piece)), uint64(len(m.Shards)))
	for i, s := range m.Shards {
		text(s.Name)
		out = append(binary.AppendUvarint(out, uint64(s.Size)), s.Digest[:]...)
		counted := uint64(0)
		if s.Counted {
			counted = s.Count + 1
		}
		out = binary.AppendUvarint(out, counted)
		if l.Piece > 0 {
			out = binary.AppendUvarint(out, l.Pieces[i])
		}
	}
	return out
}

func decode(in []byte) (*Listing, bool) {
	ok := true
	number := func() uint64 {
		v, n := binary.Uvarint(in)
		if ok = ok && n > 0; !ok {
			return 0
		}
		in = in[n:]
		return v
	}
	take := func(n uint64) []byte {
		if ok = ok && n <= uint64(len(in)); !ok {
			return nil
		}
		var out []byte
		out, in = in[:n], in[n:]
		return out
	}
	text := func() string { return string(take(number())) }
	l := &Listing{}
	m := &l.Manifest
	m.Source, m.Format, m.Shuffle = text(), text(), millrace.Shuffle(text())
	l.Settings, l.Blocks = []byte(text()), text()
	copy(m.Fingerprint[:], take(uint64(len(m.Fingerprint))))
	l.Piece = uint32(number())
	for n := number(); n > 0 && ok; n-- {
		s := millrace.Shard{Name: text(), Size: int64(number())}
		copy(s.Digest[:], take(uint64(len(s.Digest))))
		if counted := number(); counted > 0 {
			s.Count, s.Counted = counted-1, true
		}
		m.Shards = append(m.Shards, s)
		if l.Piece > 0 {
			l.Pieces = append(l.Pieces, number())
		}
	}
	return l, ok && len(in) == 0
}

// before returns the listing of the first files of a listing that have a fingerprint, nil if there is none. So files
// that were added behind all others are found without an earlier listing.
func (l *Listing) before(files [4]byte) *Listing {
	for n := len(l.Manifest.Shards) - 1; n > 0; n-- {
		m := l.Manifest
		m.Shards = m.Shards[:n:n]
		if m.Fingerprint = Fingerprint(l.Settings, m.Shards); Begin(m.Fingerprint) == files {
			out := &Listing{Manifest: m, Settings: l.Settings, Blocks: l.Blocks, Piece: l.Piece}
			if l.Piece > 0 {
				out.Pieces = l.Pieces[:n]
			}
			return out
		}
	}
	return nil
}

// Fingerprint hashes the facts that decide a source's samples: the settings, and the names, sizes and digests of its
// files.
func Fingerprint(settings []byte, shards []millrace.Shard) (d millrace.Digest) {
	h, err := blake2b.New(len(d), nil)
	if err != nil {
		return d // only a size or key out of range is an error
	}
	in := binary.LittleEndian.AppendUint64(slices.Clip(settings), uint64(len(shards)))
	for _, s := range shards {
		in = append(binary.LittleEndian.AppendUint64(in, uint64(len(s.Name))), s.Name...)
		in = binary.LittleEndian.AppendUint64(in, uint64(s.Size))
		in = append(in, s.Digest[:]...)
		h.Write(in)
		in = in[:0]
	}
	h.Write(in)
	h.Sum(d[:0])
	return d
}

// tables has the block tables of shards that were read to their end, by digest.
type tables map[millrace.Digest]order.Table

// read reads the tables of a listing's shards.
func (t tables) read(l *Listing, from Blobs) {
	for i := range l.Manifest.Shards {
		digest := l.Manifest.Shards[i].Digest
		blob, ok := from.Load(digest, l.Blocks)
		if !ok {
			continue
		}
		if table, err := order.DecodeTable(blob); err == nil {
			t[digest] = table
		}
	}
}

// ordinals returns the ordinals of a shard in an epoch, false if they are not known. piece is the number of tokens of a
// piece; 0: ordinals are documents.
func (l *Listing) ordinals(shard int, piece uint32, tables tables) (n uint64, known bool) {
	s := &l.Manifest.Shards[shard]
	switch {
	case piece > 0 && piece == l.Piece:
		return l.Pieces[shard], true
	case piece > 0:
		return 0, false
	case s.Counted:
		return s.Count, true
	}
	t, known := tables[s.Digest]
	return t.Count(), known
}
