package find

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"millrace"
	"millrace/sources/find/layout"
	"millrace/sources/format/registry"
)

const wildcards = "*?[{"

// finder finds the files of one source.
type finder struct {
	sifter
	base string   // relative patterns start here
	tree Tree     // of URLs
	one  [1]match // the answer of entry

	config, split string           // the chosen part of each directory that has parts
	isDivided     bool             // a path led to a directory with parts
	only          bool             // note the layouts, and choose no part
	layouts       []*layout.Layout // of the directories that were found to have parts
	outside       map[string]bool  // directories that are no tables, and are in none
	rows          Rows             // of checkpoints
	version       *uint64          // of Delta tables; nil: the newest
	versions      []uint64         // of the Delta tables that paths led to
}

// newFinder returns a finder for a query.
func newFinder(tree Tree, q Query) *finder {
	return &finder{sifter: sifter{format: q.Format, there: exists}, base: q.Base, tree: tree, config: q.Config,
		split: q.Split, rows: q.Rows, version: q.Version}
}

// match is a file found, with the root that its pattern gives it.
type match struct {
	path, root string
	inside     string     // see File
	constants  []Constant // of the log of its table
}

// pattern finds the files of one pattern.
func (f *finder) pattern(pattern string) ([]match, error) {
	switch {
	case pattern == "":
		return nil, millrace.Errorf(millrace.ErrInvalid, "it is empty")
	case IsURL(pattern):
		return f.url(pattern)
	}
	full := pattern
	if !filepath.IsAbs(full) {
		full = filepath.Join(f.base, full)
	}
	found, err := f.literal(full, "")
	if err != nil || len(found) > 0 {
		return found, err
	}
	if !strings.ContainsAny(pattern, wildcards) {
		return nil, f.notThere(full)
	}
	// Only the user's pattern may have wildcards: [ and { in the name of the base directory match literally.
	dir, rest := splitRoot(pattern)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(f.base, dir)
	}
	dir = filepath.Clean(dir)
	parts, err := expandBraces(rest)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		ms, err := f.part(dir, part)
		if err != nil {
			return nil, err
		}
		if len(ms) == 0 {
			return nil, f.notThere(filepath.Join(dir, part))
		}
		found = append(found, ms...)
	}
	return found, nil
}

// splitRoot splits a pattern behind the last slash before its first wildcard.
func splitRoot(pattern string) (dir, rest string) {
	first := strings.IndexAny(pattern, wildcards)
	slash := strings.LastIndexByte(pattern[:first], '/')
	return pattern[:slash+1], pattern[slash+1:]
}

// part finds the files of one pattern without braces below dir, which is their root.
func (f *finder) part(dir, part string) ([]match, error) {
	found, err := f.literal(filepath.Join(dir, part), dir)
	if err != nil || len(found) > 0 || !strings.ContainsAny(part, "*?[") {
		return found, err
	}
	if part = path.Clean(part); !strings.ContainsAny(part, "*?[") { // `..` took the wildcards away
		return f.literal(filepath.Join(dir, part), dir)
	}
	if !doublestar.ValidatePattern(part) {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%q is no pattern: check its `[` and `\\`", part)
	}
	// The walk begins at the literal head of this alternative, because `..` is no path of an fs.FS.
	head, glob := ".", part
	if sub, tail := splitRoot(part); sub != "" {
		head, glob = sub, tail
	}
	base := filepath.Join(dir, head)
	if err := f.checkInside(base); err != nil {
		return nil, err
	}
	err = doublestar.GlobWalk(os.DirFS(base), glob, func(name string, e fs.DirEntry) error {
		if why := passesOver(name, glob, f.format); why != "" {
			f.passOver(joined(base, name), name, why)
			return nil
		}
		ms, err := f.entry(joined(base, name), e, dir)
		if err != nil {
			return err
		}
		for _, m := range ms {
			ok, err := f.wants(m.path)
			if err != nil {
				return err
			}
			if ok {
				found = append(found, m)
			}
		}
		return nil
	}, doublestar.WithFailOnIOErrors())
	if err != nil && !errors.Is(err, millrace.ErrInvalid) {
		err = fmt.Errorf("search %s: %w", filepath.Join(dir, part), err)
	}
	return found, err
}

// joined returns the path of a name that a walk of a clean directory found.
func joined(dir, name string) string {
	if dir == "/" || name == "." {
		return filepath.Join(dir, name)
	}
	return dir + "/" + name
}

// entry finds the files at a path that a wildcard leads to. A regular file needs no look at the path.
func (f *finder) entry(full string, e fs.DirEntry, root string) ([]match, error) {
	if !e.Type().IsRegular() {
		return f.literal(full, root)
	}
	f.one[0] = match{path: f.shardFile(full), root: root}
	return f.one[:], nil
}

// literal finds the files at exactly this path: a file, the files of a directory, or a Megatron prefix. If root is
// empty, the root is that of a path without wildcards.
func (f *finder) literal(full, root string) ([]match, error) {
	full = filepath.Clean(full)
	st, err := os.Stat(full)
	switch {
	case err == nil && st.IsDir():
		return f.below(full, cmp.Or(root, full))
	case err == nil && filepath.Base(full) == registry.IndexName:
		dir := filepath.Dir(full)
		if found, ok, err := f.dataset(dir, cmp.Or(root, dir)); ok || err != nil {
			return found, err
		}
		fallthrough
	case err == nil:
		return []match{{path: f.shardFile(full), root: cmp.Or(root, filepath.Dir(full))}}, nil
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("look at %s: %w", full, err)
	}
	if f.format == registry.Megatron {
		if exists(full+".bin") || exists(full+".idx") {
			return []match{{path: full + ".bin", root: cmp.Or(root, filepath.Dir(full))}}, nil
		}
	}
	return nil, nil
}

// shardFile returns the .bin for its .idx, so that both name the same shard.
func (f *finder) shardFile(file string) string {
	if f.format == registry.Megatron && kindOf(file).format == registry.Megatron {
		return strings.TrimSuffix(file, filepath.Ext(file)) + ".bin"
	}
	return file
}

// below finds the files of a directory. It does not follow links to directories, which may form circles; it follows
// links to files.
func (f *finder) below(dir, root string) ([]match, error) {
	if err := f.checkInside(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	w := &walk{finder: f, dir: dir, root: root}
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return w.enter(p, e.Name())
		}
		return w.file(p, e)
	})
	if err == nil {
		err = w.sets.missing()
	}
	if err == nil {
		w.found, err = f.divide(local{}, dir, w.found, w.marked)
	}
	if err != nil && !errors.Is(err, millrace.ErrInvalid) {
		err = fmt.Errorf("walk %s: %w", dir, err)
	}
	return w.found, err
}

// walk is one walk of a directory.
type walk struct {
	*finder
	dir, root string
	found     []match
	sets      energonSets
	marked    []string // directories with a file that may name parts
}

// enter looks at a directory before its files.
func (w *walk) enter(p, name string) error {
	if why := partLeftOut(name, false, w.format); why != "" && p != w.dir {
		w.skipName(p, name, why+"; nothing below it is read")
		return fs.SkipDir
	}
	if t := tableIn(local{}, p); t != nil && !t.isRead() {
		return t.refuse(p)
	} else if t != nil {
		files, err := w.delta(local{}, p, w.root, exists)
		if w.found = append(w.found, files...); err == nil {
			err = fs.SkipDir
		}
		return err
	}
	if isMarked(local{}, p) {
		w.marked = append(w.marked, p)
	}
	if w.format == registry.Arrow {
		return nil
	}
	set, err := w.energon(p)
	if err != nil {
		return err
	}
	if set != nil {
		w.sets = append(w.sets, set)
	}
	listed, ok, err := w.dataset(p, w.root)
	if w.found = append(w.found, listed...); ok && err == nil {
		err = fs.SkipDir
	}
	return err
}

// file looks at a file of the directory.
func (w *walk) file(p string, e fs.DirEntry) error {
	set := w.sets.of(p)
	if why := partLeftOut(e.Name(), true, w.format); why != "" && (set == nil || set.of[p] == "") {
		w.passOver(p, e.Name(), why)
		return nil
	}
	ok, err := w.belongs(p, e)
	if ok && set != nil {
		if why := set.leavesOut(p); why != "" {
			w.skip(p, "%s", why)
			ok = false
		}
	}
	if ok {
		w.found = append(w.found, match{path: p, root: w.root})
	}
	return err
}

// energon returns the dataset in a directory, nil if it is no Energon dataset.
func (f *finder) energon(dir string) (*energonSet, error) {
	wanted := f.split
	if f.only {
		wanted = ""
	}
	set, names, err := readEnergon(dir, wanted)
	if len(names) > 0 && (err == nil || f.only) {
		f.isDivided = true
		f.layouts = append(f.layouts, energonLayout(dir, names))
	}
	if f.only && errors.Is(err, millrace.ErrInvalid) && len(names) > 0 {
		return nil, nil
	}
	return set, err
}

// checkInside refuses the files of a pattern, or of a directory, that are inside a table: only its log says which of
// them count.
func (f *finder) checkInside(dir string) error {
	for at := dir; !f.outside[at]; at = filepath.Dir(at) {
		if f.outside == nil {
			f.outside = map[string]bool{}
		}
		f.outside[at] = true
		if t := tableIn(local{}, at); t != nil {
			return t.refuseInside(dir, at)
		}
	}
	return nil
}

// notThere returns an error that names the missing file and the nearest directory that exists.
func (f *finder) notThere(full string) error {
	near := full
	for near != filepath.Dir(near) {
		near = filepath.Dir(near)
		if st, err := os.Stat(near); err == nil && st.IsDir() {
			break
		}
	}
	if st, err := os.Stat(full); err == nil && st.IsDir() {
		near = full
	}
	if why := notFetched(full); why != "" {
		return &missing{"no " + f.format + " file is there: " + why}
	}
	text := fmt.Sprintf("no %s file is there: looked for %s, nearest directory that exists is %s", f.format, full, near)
	return &missing{text + f.skippedHint()}
}

// missing is the error of a file that is not there. Either the mixture file is wrong, or the file was there before and
// may come back.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }

// Unwrap returns both of its classes.
func (e *missing) Unwrap() []error { return []error{millrace.ErrInvalid, fs.ErrNotExist} }
