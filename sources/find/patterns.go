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
)

const wildcards = "*?[{"

// finder finds the files of one source.
type finder struct {
	sifter
	base string   // relative patterns start here
	tree Tree     // of URLs
	one  [1]match // the answer of entry

	split   string // of Energon datasets; empty: train, or the only one
	divided bool   // a path led to an Energon dataset
}

// match is a file found, with the root that its pattern gives it.
type match struct{ path, root string }

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
	err = doublestar.GlobWalk(os.DirFS(base), glob, func(name string, e fs.DirEntry) error {
		if hidden(name) && !hidden(glob) {
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

// hidden reports whether any part of a path begins with a dot. Wildcards pass over such files.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 1 && part[0] == '.' && part != ".." {
			return true
		}
	}
	return false
}

// literal finds the files at exactly this path: a file, the files of a directory, or a Megatron prefix. If root is
// empty, the root is that of a path without wildcards.
func (f *finder) literal(full, root string) ([]match, error) {
	full = filepath.Clean(full)
	st, err := os.Stat(full)
	switch {
	case err == nil && st.IsDir():
		return f.below(full, cmp.Or(root, full))
	case err == nil && filepath.Base(full) == indexName:
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
	if f.format == megatronFormat {
		if exists(full+".bin") || exists(full+".idx") {
			return []match{{path: full + ".bin", root: cmp.Or(root, filepath.Dir(full))}}, nil
		}
	}
	return nil, nil
}

// shardFile returns the .bin for its .idx, so that both name the same shard.
func (f *finder) shardFile(file string) string {
	if f.format == megatronFormat && kindOf(file).format == megatronFormat {
		return strings.TrimSuffix(file, filepath.Ext(file)) + ".bin"
	}
	return file
}

// below walks a directory. It does not follow links to directories, which may form circles; it follows links to files.
func (f *finder) below(dir, root string) ([]match, error) {
	var found []match
	var sets energonSets
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		isHidden := p != dir && strings.HasPrefix(e.Name(), ".")
		if e.IsDir() {
			if isHidden {
				return fs.SkipDir
			}
			if f.format == arrowFormat {
				return checkSaved(p)
			}
			set, err := readEnergon(p, f.split)
			if err != nil {
				return err
			}
			if set != nil {
				sets, f.divided = append(sets, set), true
			}
			listed, ok, err := f.dataset(p, root)
			if found = append(found, listed...); ok && err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if isHidden {
			f.skipHidden(p)
			return nil
		}
		set := sets.of(p)
		ok, err := f.belongs(p, e)
		if ok && set != nil {
			if why := set.leavesOut(p); why != "" {
				f.skip(p, "%s", why)
				ok = false
			}
		}
		if ok {
			found = append(found, match{path: p, root: root})
		}
		return err
	})
	if err == nil {
		err = sets.missing()
	}
	if err != nil && !errors.Is(err, millrace.ErrInvalid) {
		err = fmt.Errorf("walk %s: %w", dir, err)
	}
	return found, err
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
	text := fmt.Sprintf("no %s file is there: looked for %s, nearest directory that exists is %s", f.format, full, near)
	return &missing{text + f.skippedHint()}
}

// missing is the error of a file that is not there. Either the mixture file is wrong, or the file was there before and
// may come back.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }

// Unwrap returns both of its classes.
func (e *missing) Unwrap() []error { return []error{millrace.ErrInvalid, fs.ErrNotExist} }
