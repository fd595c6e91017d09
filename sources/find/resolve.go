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
	Name      string // below the root, with forward slashes
	Path      string
	Constants []Constant // fields of its records that follow from its place; files may share them

	inside string // the path below the directory of its table, whose log gave Constants; empty: it is of no table
}

// Resolved is the answer to a source's path patterns.
type Resolved struct {
	Files   []File    // in the order of their names' bytes, each name and each path once
	Skipped []Skipped // in the order of their paths, each once
	// Versions are those of the Delta tables with files, in the order in which they were found.
	Versions []uint64
}

// Query asks for the files of a source.
type Query struct {
	Base     string   // directory at which relative patterns start
	Patterns []string // see Resolve
	Root     string   // of the names of files; see Resolve
	Format   string
	// Config and Split choose a part of each directory whose layout names parts; see Parts. Empty: the only part.
	Config, Split string
	Version       *uint64 // of each Delta table; nil: the newest
	Rows          Rows    // reads the checkpoints of Delta tables
}

// Resolve returns the files of a source of a format. Each pattern is a file, a directory, the prefix of a Megatron
// dataset, or a pattern with * ** ? [] {a,b} {000..146}. A directory is searched recursively for file names of the
// format. Relative patterns start at base. A path that exists as written is never read as a pattern. Every alternative
// of a brace list has to exist.
//
// Names are relative to the root. If that is empty, they are relative to the directory that each pattern names before
// its first wildcard: a directory itself, the parent of a plain file or prefix. Errors that the mixture file can cure
// wrap millrace.ErrInvalid.
//
// A directory may have several parts, such as a training and a test set. Then the query chooses one; a query that
// chooses none, or one that no directory has, is an error.
//
// Folders `key=value` in the name of a file give its records the constant key.
//
// A directory with the log of a Delta table has the files of one version of the table. Its records have the partition
// columns as constants.
//
// A pattern may be a URL of a store, in which tree finds files; a nil tree has none. The root of its files is a URL,
// too.
func Resolve(tree Tree, q Query) (Resolved, error) {
	root := q.Root
	if root != "" && !filepath.IsAbs(root) && !IsURL(root) {
		root = filepath.Join(q.Base, root)
	}
	if len(q.Patterns) == 0 {
		return Resolved{}, millrace.Errorf(millrace.ErrInvalid, "resolve paths: none given")
	}
	f := newFinder(tree, q)
	var found []match
	for _, pattern := range q.Patterns {
		ms, err := f.pattern(pattern)
		if err != nil {
			return Resolved{}, fmt.Errorf("resolve path %q: %w", pattern, err)
		}
		found = append(found, ms...)
	}
	if err := f.unused(); err != nil {
		return Resolved{}, err
	}
	files, err := name(found, root)
	if err != nil {
		return Resolved{}, err
	}
	setConstants(files)
	return Resolved{Files: files, Skipped: leftOut(f.skipped, files), Versions: f.versions}, nil
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
		files = append(files, File{Name: rel, Path: m.path, Constants: m.constants, inside: m.inside})
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
