package find

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"millrace"
)

// File is one file of a source. Name is the part before # of its records' ids. Path is its path on this host.
type File struct {
	Name string // below the root, with forward slashes
	Path string
}

// Resolved is the answer to a source's path patterns.
type Resolved struct {
	Files   []File    // in the order of their names' bytes, each name and each path once
	Skipped []Skipped // in the order of their paths, each once
}

// Resolve returns the files of a source of a format. Each pattern is a file, a directory, the prefix of a Megatron
// dataset, or a pattern with * ** ? [] {a,b} {000..146}. A directory is searched recursively for file names of the
// format. Relative patterns start at base. A path that exists as written is never read as a pattern. Every alternative
// of a brace list has to exist.
//
// Names are relative to root. If root is empty, they are relative to the directory that each pattern names before its
// first wildcard: a directory itself, the parent of a plain file or prefix. Errors that the mixture file can cure wrap
// millrace.ErrInvalid.
//
// split names the split of an Energon dataset that a path to its directory reads. If it is empty, that is train, or the
// only split. A split without an Energon dataset is an error.
//
// A pattern may be a URL of a store, in which tree finds files; a nil tree has none. The root of its files is a URL,
// too.
func Resolve(tree Tree, base string, patterns []string, root, format, split string) (Resolved, error) {
	if root != "" && !filepath.IsAbs(root) && !IsURL(root) {
		root = filepath.Join(base, root)
	}
	if len(patterns) == 0 {
		return Resolved{}, millrace.Errorf(millrace.ErrInvalid, "resolve paths: none given")
	}
	f := &finder{sifter: sifter{format: format, there: exists}, base: base, tree: tree, split: split}
	var found []match
	for _, pattern := range patterns {
		ms, err := f.pattern(pattern)
		if err != nil {
			return Resolved{}, fmt.Errorf("resolve path %q: %w", pattern, err)
		}
		found = append(found, ms...)
	}
	if split != "" && !f.divided {
		return Resolved{}, millrace.Errorf(millrace.ErrInvalid, "find the split %s: no path leads to a directory with "+
			"%s of Energon: name that directory, or leave `split` out", split, energonSplits)
	}
	files, err := name(found, root)
	if err != nil {
		return Resolved{}, err
	}
	return Resolved{Files: files, Skipped: leftOut(f.skipped, files)}, nil
}

// leftOut returns the files that were skipped under every pattern.
func leftOut(skipped []Skipped, files []File) []Skipped {
	if len(skipped) == 0 {
		return nil
	}
	read := make(map[string]bool, len(files))
	for _, file := range files {
		read[file.Path] = true
	}
	out := slices.DeleteFunc(skipped, func(s Skipped) bool { return read[s.Path] })
	slices.SortFunc(out, func(a, b Skipped) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b Skipped) bool { return a.Path == b.Path })
}

// name names every file, drops files that were matched twice, and sorts.
func name(found []match, root string) ([]File, error) {
	files := make([]File, 0, len(found))
	// a pattern alone yields each path once, and mostly in the order of names
	var seen map[string]bool
	if !slices.IsSortedFunc(found, func(a, b match) int { return strings.Compare(a.path, b.path) }) {
		seen = make(map[string]bool, len(found))
	}
	for i, m := range found {
		if seen == nil && i > 0 && found[i-1].path == m.path || seen[m.path] {
			continue
		}
		if seen != nil {
			seen[m.path] = true
		}
		from := m.root
		if root != "" {
			from = root
		}
		rel, err := nameBelow(from, m.path)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Name: rel, Path: m.path})
	}
	byName := func(a, b File) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Path, b.Path))
	}
	if !slices.IsSortedFunc(files, byName) {
		slices.SortFunc(files, byName)
	}
	for i := 1; i < len(files); i++ {
		if a, b := files[i-1], files[i]; a.Name == b.Name {
			return nil, millrace.Errorf(millrace.ErrInvalid,
				"name files: %s and %s would both be %q: set `root:` of the source to a directory above both", a.Path,
				b.Path, a.Name)
		}
	}
	return files, nil
}

// nameBelow returns the path of a file below a root, with forward slashes. The name of a file shares the memory of its
// path.
func nameBelow(root, file string) (string, error) {
	rel := file
	if head := strings.TrimSuffix(root, "/"); strings.HasPrefix(file, head) && len(file) > len(head)+1 &&
		file[len(head)] == '/' {
		rel = file[len(head)+1:]
	} else {
		var err error
		if IsURL(root) != IsURL(file) {
			return "", millrace.Errorf(millrace.ErrInvalid, "name %s: it is not below the root %s", file, root)
		}
		if rel, err = filepath.Rel(root, file); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return "", millrace.Errorf(millrace.ErrInvalid,
				"name %s: it is not below the root %s: set `root:` to a directory above it", file, root)
		}
	}
	if !utf8.ValidString(rel) {
		return "", millrace.Errorf(millrace.ErrInvalid, "name %q: not valid UTF-8; rename the file", file)
	}
	return filepath.ToSlash(rel), nil
}
