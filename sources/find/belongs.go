package find

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"millrace"
	"millrace/sources/format/registry"
)

// Skipped is a file that a directory or a wildcard leads to and that the source does not read.
type Skipped struct {
	Path   string
	Reason string
	Side   bool // the file surely holds no records
}

// sifter decides which files belong to a source. It lists the others as skipped.
type sifter struct {
	format  string // of the source
	skipped []Skipped
	looked  int // files whose content was looked at
	saved   saved
	there   func(path string) bool // reports whether a regular file is at a path
}

func (f *sifter) skip(path, reason string, args ...any) {
	f.skipped = append(f.skipped, Skipped{Path: path, Reason: fmt.Sprintf(reason, args...)})
}

func (f *sifter) skipSide(path string) {
	f.skipped = append(f.skipped,
		Skipped{Path: path, Reason: "it describes a dataset and holds no records", Side: true})
}

// skipUnknown lists a file whose name shows no format. Its content may show that it holds records.
func (f *sifter) skipUnknown(file string) {
	const mostLooked = 100
	if f.looked++; f.looked <= mostLooked && !IsURL(file) && byContent(file) == f.format {
		f.skip(file, "its name has no ending of a known format, and its content is %s: name the file itself to read it",
			f.format)
		return
	}
	f.skip(file, "its name has no ending of a known format")
}

// passOver lists a file that is left out by its name, unless the name surely has no data and is hidden.
func (f *sifter) passOver(file, name, why string) {
	if isSilent(name) && strings.Contains("/"+name, "/.") && f.kindOf(file).format != f.format {
		return
	}
	f.skipName(file, name, why)
}

// unpackCure returns the cure for data of a format in a packing that is not read. It names the packings that are read.
func unpackCure(name string) string {
	row := registry.Named(name)
	if row == nil || len(row.Packed) == 0 {
		return "unpack it"
	}
	last := len(row.Packed) - 1
	if last == 0 {
		return "unpack it, or pack it with " + row.Packed[0]
	}
	return "unpack it, or pack it with " + strings.Join(row.Packed[:last], ", ") + " or " + row.Packed[last]
}

// belongs reports whether a file of a directory belongs to the source, and lists it as skipped if it does not. Data of
// the source's format in a packing that is not read is an error: leaving it out would lose data.
func (f *sifter) belongs(file string, e fs.DirEntry) (bool, error) {
	k := f.kindOf(file)
	isData := k.format == f.format && !k.side || f.format == registry.Text && !isBinary(file)
	if isData && !e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0 {
		st, err := os.Stat(file)
		switch {
		case err != nil && isData && notFetched(file) != "":
			return false, &missing{"read " + file + ": " + notFetched(file)}
		case err != nil && isData:
			return false, err
		case err != nil:
			f.skip(file, "it is a link to a missing file")
			return false, nil
		case st.IsDir():
			f.skip(file, "a link to a directory is not followed")
			return false, nil
		case isData && !st.Mode().IsRegular():
			f.skip(file, "it is no regular file")
			return false, nil
		}
	}
	return f.belongsByName(file)
}

// belongsByName is belongs for a regular file.
func (f *sifter) belongsByName(file string) (bool, error) {
	k := f.kindOf(file)
	isData := k.format == f.format && !k.side
	switch {
	case f.format == registry.Text:
		return f.belongsToText(file), nil
	case k.side || f.isOfOLMo(file):
		f.skipSide(file)
	case strings.HasSuffix(file, ".dvc") && f.kindOf(strings.TrimSuffix(file, ".dvc")).format == f.format:
		return false, f.checkDVC(file)
	case k.format == "":
		f.skipUnknown(file)
	case isData && k.unread != "":
		return false, unreadError(file, k)
	case k.format == registry.Megatron:
		return f.belongsToDataset(file), nil
	case !isData:
		f.skip(file, "its name is that of a %s file, and the source reads %s", k.format, f.format)
	case k.format == registry.Arrow:
		why, err := f.strayArrow(file)
		if why != "" {
			f.skip(file, "%s", why)
		}
		return why == "", err
	default:
		return true, nil
	}
	return false, nil
}

func unreadError(file string, k kind) error {
	return millrace.Errorf(millrace.ErrInvalid,
		"read %s: it is %s packed with %s, which is not read; %s, or take it out of the path", file, k.format, k.unread,
		unpackCure(k.format))
}

// belongsToDataset reports whether a .bin or .idx names a shard. A .bin with its .idx beside it does. Other programs
// have files of these names, too.
func (f *sifter) belongsToDataset(file string) bool {
	ext := filepath.Ext(file)
	bare := strings.TrimSuffix(file, ext)
	other := bare + ".idx"
	if ext == ".idx" {
		other = bare + ".bin"
	}
	switch {
	case !f.there(other) && f.format == registry.Tokens && ext == ".bin":
		return true
	case !f.there(other):
		f.skip(file, "%s is not beside it", filepath.Base(other))
	case f.format == registry.Tokens:
		f.skip(file, "%s is beside it, so it belongs to a Megatron dataset", filepath.Base(other))
	case f.format != registry.Megatron:
		f.skip(file, "it belongs to a Megatron dataset, and the source reads %s", f.format)
	default:
		return ext == ".bin" // the source lists the .bin for both
	}
	return false
}

// belongsToText reports whether a file of a tree of texts is one: all but those whose names are of binary files.
func (f *sifter) belongsToText(file string) bool {
	if isBinary(file) {
		f.skip(file, "its name is that of a binary file")
		return false
	}
	return true
}

// isOfOLMo reports whether a file has the places of the documents of a .npy beside it.
func (f *sifter) isOfOLMo(file string) bool {
	bare, ok := strings.CutSuffix(file, ".csv.gz")
	return ok && f.format == registry.OLMo && f.there(bare+".npy")
}

// wants reports whether a file that a wildcard leads to belongs to the source. Side files, indexes of other programs
// and data in a packing that is not read do not belong to it.
func (f *sifter) wants(file string) (bool, error) {
	k := f.kindOf(file)
	data := strings.TrimSuffix(file, filepath.Ext(file))
	switch {
	case f.format == registry.Text:
		return true, nil
	case k.format == registry.Megatron && registry.Ending(strings.ToLower(filepath.Ext(data))) != nil && f.there(data):
		f.skip(data+".idx", "it is the index that another program keeps of %s", filepath.Base(data))
	case k.side || f.isOfOLMo(file) || f.isIndex(file):
		f.skipSide(file)
	case k.format == f.format && k.unread != "":
		return false, unreadError(file, k)
	case f.format == registry.Megatron && k.format != registry.Megatron:
		f.skip(file, "its name is not that of a Megatron dataset")
	default:
		return true, nil
	}
	return false, nil
}

// skippedHint returns the end of the error of a path without files. It names the first skipped file.
func (f *sifter) skippedHint() string {
	if len(f.skipped) == 0 {
		return ""
	}
	s := f.skipped[0]
	return fmt.Sprintf("; %s was left out: %s", s.Path, s.Reason)
}

// checkDVC lists a file of DVC as skipped if the file that it stands for is there, and refuses it otherwise.
func (f *sifter) checkDVC(file string) error {
	if data := strings.TrimSuffix(file, ".dvc"); !f.there(data) {
		return &missing{"read " + data + ": it is not there, and " + file + " stands for it: run `dvc pull`"}
	}
	f.skipSide(file)
	return nil
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
