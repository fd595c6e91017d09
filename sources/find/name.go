package find

import (
	"path"
	"slices"
	"strings"

	"millrace/sources/format/registry"
)

// detect returns the format by a file's name. It returns false for other names, side files and packings that are not
// read.
func detect(name string) (string, bool) {
	k := kindOf(name)
	if k.unread != "" || k.side {
		return "", false
	}
	return k.format, k.format != ""
}

// kind has the facts that follow from a file's name.
type kind struct {
	format string // "" if the name has no known format
	unread string // the name of a packing that the format's reader does not unpack
	side   bool   // the file describes a dataset and holds no records
	weak   bool   // other programs write files of this name beside their data, too
}

// kindOf looks at a name. The case of letters does not matter.
func kindOf(name string) kind {
	name = withoutPart(strings.ToLower(path.Base(name)))
	bare, packed := unpacked(name)
	k := kind{side: isSideFile(bare)}
	row := registry.Ending(path.Ext(bare))
	if row == nil {
		return k
	}
	k.format = string(row.Name)
	k.weak = slices.ContainsFunc(row.Weak, func(ending string) bool { return strings.HasSuffix(name, ending) })
	for _, p := range packed {
		if len(packed) > 1 || !slices.Contains(row.Packed, p) {
			k.unread = p
			break
		}
	}
	return k
}

// kindOf is the kind of a file for this source. A file named .json has either of two formats.
func (f *sifter) kindOf(file string) kind {
	k := kindOf(file)
	bare, _ := unpacked(strings.ToLower(path.Base(file)))
	if f.format == registry.JSON && path.Ext(bare) == ".json" {
		k.format, k.weak = registry.JSON, false
	}
	return k
}

// withoutPart returns a name without the number of a part at its end, as in x.tfrecord-00003-of-00010.
func withoutPart(name string) string {
	bare, of, _ := cutLast(name, "-of-")
	bare, part, ok := cutLast(bare, "-")
	if !ok || !digits(of) || !digits(part) || path.Ext(bare) == "" {
		return name
	}
	return bare
}

// cutLast cuts around the last separator.
func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// unpacked returns a name without its packings, and the packings, outermost first.
func unpacked(name string) (bare string, found []string) {
	for registry.Ending(path.Ext(name)) == nil {
		p, ending := packingOf(name)
		if p == nil {
			break
		}
		name = strings.TrimSuffix(name, ending)
		found = append(found, p.name)
	}
	return name, found
}

// isSideFile reports whether programs write a file of this name beside a dataset to describe it.
func isSideFile(bare string) bool {
	if slices.Contains(sides, bare) {
		return true
	}
	rows := registry.Rows()
	for i := range rows {
		if slices.Contains(rows[i].Sides, bare) ||
			slices.ContainsFunc(rows[i].Besides, func(end string) bool { return strings.HasSuffix(bare, end) }) {
			return true
		}
	}
	ext := path.Ext(bare)
	stem := strings.TrimSuffix(bare, ext)
	return ext == ".md" || ext == ".crc" || stem == "readme" || stem == "license"
}
