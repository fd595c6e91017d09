package facts

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"

	pbuf "google.golang.org/protobuf/proto"

	"millrace"
	"millrace/checkpoint"
	pb "millrace/proto"
)

// SourceFiles is a source's name and the beginning of its manifest's fingerprint. A changed fingerprint shows that
// files changed. Eras says which of the files each epoch reads.
type SourceFiles struct {
	Name  string
	Files [4]byte
	Eras  millrace.Eras
}

// FilesOf returns the name of a source and the fingerprint of its manifest.
func FilesOf(name string, mf *pb.Manifest) SourceFiles {
	s := SourceFiles{Name: name}
	copy(s.Files[:], mf.GetFingerprint())
	return s
}

// prefixDigits encode the number of characters that a name shares with the one before it.
const prefixDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// filesText is the length of a fingerprint in base64.
const filesText = 6

// packSources writes sources separated by commas. Each has three parts. A digit gives the number of characters that its
// escaped name shares with the name before. The files' fingerprint follows in base64, then the rest of the name.
func packSources(list []SourceFiles) string {
	var b strings.Builder
	before := ""
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		name := url.PathEscape(s.Name)
		shared := 0
		for shared < min(len(name), len(before), len(prefixDigits)-1) && name[shared] == before[shared] {
			shared++
		}
		b.WriteByte(prefixDigits[shared])
		b.WriteString(base64.RawURLEncoding.EncodeToString(s.Files[:]))
		b.WriteString(name[shared:])
		before = name
	}
	return b.String()
}

// unpackSources reads the form that packSources writes.
func unpackSources(text string) ([]SourceFiles, error) {
	var out []SourceFiles
	before := ""
	for part := range strings.SplitSeq(text, ",") {
		bad := millrace.Errorf(millrace.ErrInvalid, "its sources are not readable at %q", part)
		if len(part) < 1+filesText {
			return nil, bad
		}
		shared := strings.IndexByte(prefixDigits, part[0])
		files, err := base64.RawURLEncoding.Strict().DecodeString(part[1 : 1+filesText])
		if shared < 0 || shared > len(before) || err != nil {
			return nil, bad
		}
		before = before[:shared] + part[1+filesText:]
		name, err := url.PathUnescape(before)
		if err != nil {
			return nil, bad
		}
		out = append(out, SourceFiles{Name: name, Files: [4]byte(files)})
	}
	return out, nil
}

// packEras writes the eras of the sources that have some: the number of sources since the one before and the bytes of
// the eras, with their length in front, as base64 of varints. The text is empty if all epochs read all files.
func packEras(list []SourceFiles) string {
	var out []byte
	next := 0
	for i := range list {
		eras := list[i].Eras.Encode()
		if len(eras) == 0 {
			continue
		}
		out = binary.AppendUvarint(out, uint64(i-next))
		out = binary.AppendUvarint(out, uint64(len(eras)))
		out, next = append(out, eras...), i+1
	}
	return base64.RawURLEncoding.EncodeToString(out)
}

// unpackEras reads the form that packEras writes into the sources.
func unpackEras(text string, list []SourceFiles) error {
	bad := millrace.Errorf(millrace.ErrInvalid, "the list of the files that its epochs read is not readable")
	in, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return bad
	}
	next := uint64(0)
	for len(in) > 0 {
		skip, a := binary.Uvarint(in)
		size, b := binary.Uvarint(in[max(a, 0):])
		if a <= 0 || b <= 0 || size == 0 || size > uint64(len(in)-a-b) || skip >= uint64(len(list))-next {
			return bad
		}
		in = in[a+b:]
		if list[next+skip].Eras, err = millrace.DecodeEras(in[:size]); err != nil {
			return err
		}
		in, next = in[size:], next+skip+1
	}
	return nil
}

// The table of a manifest with many shards is kept in the ledger's index once, and snapshots name it. A snapshot does
// not grow with the number of shards.
const (
	tableInside = 64 << 10 // bytes of a table that snapshots contain
	tablePart   = 8 << 20  // bytes of an index entry
	filesInfix  = " files "
)

// filesStream names the index entries that hold the table of a source's shards. Their step is the number of the part.
func filesStream(stream, source string) string { return stream + filesInfix + source }

// DescribeFiles describes an index entry that holds a part of a table in words. ok is false for any other index entry.
func DescribeFiles(key checkpoint.StepKey, body []byte) (text string, ok bool) {
	_, source, ok := strings.Cut(key.Stream, filesInfix)
	return fmt.Sprintf("part %d of the files of source %s, %d bytes", key.Step, source, len(body)), ok
}

// FilesEntries returns the index entries of a manifest's table, nil if snapshots contain the table.
func FilesEntries(stream millrace.Stream, m *pb.Manifest) (out []checkpoint.IndexEntry, err error) {
	if m.Parts > 0 || pbuf.Size(m.Table) <= tableInside {
		return nil, nil
	}
	body, err := pbuf.MarshalOptions{Deterministic: true}.Marshal(m.Table)
	if err != nil {
		return nil, fmt.Errorf("encode the files of source %s: %w", m.Source, err)
	}
	for len(body) > 0 {
		n := min(len(body), tablePart)
		key := checkpoint.StepKey{Stream: filesStream(string(stream), m.Source), Attempt: 1, Step: uint64(len(out))}
		out, body = append(out, checkpoint.IndexEntry{Key: key, Body: body[:n]}), body[n:]
	}
	return out, nil
}

// KeepFiles notes that the ledger has the table of a source's shards in parts.
func (s *State) KeepFiles(source string, parts int) {
	m := s.Manifests[source]
	s.Manifests[source] = withTable(m, m.Table, uint32(parts)) // others read the old message
}

// withTable returns a manifest with a table, or without.
func withTable(m *pb.Manifest, table *pb.ShardTable, parts uint32) *pb.Manifest {
	return &pb.Manifest{Source: m.Source, Format: m.Format, Shuffle: m.Shuffle, Why: m.Why, Shards: m.Shards,
		Fingerprint: m.Fingerprint, Table: table, Parts: parts}
}

// readFiles completes the manifests of a snapshot with the tables that the ledger has.
func readFiles(store *checkpoint.Store, stream string, manifests []*pb.Manifest) error {
	for i, m := range manifests {
		if m.Parts == 0 {
			continue
		}
		from := checkpoint.StepKey{Stream: filesStream(stream, m.Source), Attempt: 1}
		to := from
		to.Step = uint64(m.Parts)
		var body []byte
		parts := uint32(0)
		err := store.IndexEntries(from, to, func(e checkpoint.IndexEntry) error {
			body, parts = append(body, e.Body...), parts+1
			return nil
		})
		table := &pb.ShardTable{}
		if err == nil && parts == m.Parts {
			err = pbuf.Unmarshal(body, table)
		}
		if err != nil || parts != m.Parts {
			return fmt.Errorf("read the files of source %s: %d of %d parts are in the ledger: %w (%v)", m.Source, parts,
				m.Parts, checkpoint.ErrCorrupt, err)
		}
		manifests[i] = withTable(m, table, m.Parts)
	}
	return nil
}
