package facts

import (
	"encoding/base64"
	"net/url"
	"strings"

	"millrace"
	pb "millrace/proto"
)

// SourceFiles is a source's name and the beginning of its manifest's fingerprint. A changed fingerprint shows that
// files changed.
type SourceFiles struct {
	Name  string
	Files [4]byte
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
