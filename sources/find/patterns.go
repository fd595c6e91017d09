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

// findPattern finds the files of one pattern.
func findPattern(base, pattern, format string) ([]match, error) {
	switch {
	case pattern == "":
		return nil, millrace.Errorf(millrace.ErrInvalid, "it is empty")
	case strings.Contains(pattern, "://"):
		return nil, millrace.Errorf(millrace.ErrInvalid, "remote files are not read yet; mount or copy them")
	}
	full := pattern
	if !filepath.IsAbs(full) {
		full = filepath.Join(base, full)
	}
	found, err := findLiteral(full, "", format)
	if err != nil || len(found) > 0 {
		return found, err
	}
	if !strings.ContainsAny(pattern, wildcards) {
		return nil, notThere(full, format)
	}
	// Only the user's pattern is searched for wildcards: a base directory named with [ or { stands for itself.
	dir, rest := splitRoot(pattern)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(base, dir)
	}
	dir = filepath.Clean(dir)
	parts, err := expandBraces(rest)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		ms, err := findPart(dir, part, format)
		if err != nil {
			return nil, err
		}
		if len(ms) == 0 {
			return nil, notThere(filepath.Join(dir, part), format)
		}
		found = append(found, ms...)
	}
	return found, nil
}

// splitRoot cuts a pattern behind the last slash before its first wildcard.
func splitRoot(pattern string) (dir, rest string) {
	first := strings.IndexAny(pattern, wildcards)
	slash := strings.LastIndexByte(pattern[:first], '/')
	return pattern[:slash+1], pattern[slash+1:]
}

// findPart finds the files of one brace-free pattern below dir, which is their root.
func findPart(dir, part, format string) ([]match, error) {
	found, err := findLiteral(filepath.Join(dir, part), dir, format)
	if err != nil || len(found) > 0 || !strings.ContainsAny(part, "*?[") {
		return found, err
	}
	part = path.Clean(part)
	if !doublestar.ValidatePattern(part) {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%q is no pattern; see `[` and `\\`", part)
	}
	// The literal head of this alternative is walked to first, as `..` is no path of an fs.FS.
	head, glob := ".", part
	if sub, tail := splitRoot(part); sub != "" {
		head, glob = sub, tail
	}
	names, err := doublestar.Glob(os.DirFS(filepath.Join(dir, head)), glob, doublestar.WithFailOnIOErrors())
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", filepath.Join(dir, part), err)
	}
	for _, n := range names {
		if hidden(n) && !hidden(glob) {
			continue
		}
		ms, err := findLiteral(filepath.Join(dir, head, n), dir, format)
		if err != nil {
			return nil, err
		}
		for _, m := range ms {
			if wanted(m.path, format) {
				found = append(found, m)
			}
		}
	}
	return found, nil
}

// wanted tells whether a file that a wildcard hit belongs to the source: what a user's pattern names is taken at its word where a
// format is written, else where the name tells one.
func wanted(path, format string) bool {
	if prefix, ok := strings.CutSuffix(path, ".bin"); ok && exists(prefix) {
		return false // x.jsonl.idx is the index that other programs keep of x.jsonl
	}
	if format == "" || format == megatronFormat {
		return holds(format, path)
	}
	return true
}

// hidden tells whether any part of a path begins with a dot, as wildcards pass over such files.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 1 && part[0] == '.' && part != ".." {
			return true
		}
	}
	return false
}

// findLiteral finds what exists under exactly this path: a file, the files of a directory, or a Megatron prefix. The root is the
// one given, or by default what a path without wildcards has.
func findLiteral(full, root, format string) ([]match, error) {
	full = filepath.Clean(full)
	st, err := os.Stat(full)
	switch {
	case err == nil && st.IsDir():
		return findBelow(full, cmp.Or(root, full), format)
	case err == nil:
		return []match{{path: megatronBin(full, format), root: cmp.Or(root, filepath.Dir(full))}}, nil
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("look at %s: %w", full, err)
	}
	if format == "" || format == megatronFormat {
		if exists(full+".bin") || exists(full+".idx") {
			return []match{{path: full + ".bin", root: cmp.Or(root, filepath.Dir(full))}}, nil
		}
	}
	return nil, nil
}

// megatronBin names the .bin for its .idx, so that both stand for one shard.
func megatronBin(file, format string) string {
	if f, _ := Detect(file); f == megatronFormat && (format == "" || format == megatronFormat) {
		return strings.TrimSuffix(file, filepath.Ext(file)) + ".bin"
	}
	return file
}

// findBelow walks a directory. Links to directories inside it are not followed (they may form circles), links to files are.
func findBelow(dir, root, format string) ([]match, error) {
	var found []match
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p != dir && strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !holds(format, p) {
			return nil
		}
		if st, err := os.Stat(p); err != nil || !st.Mode().IsRegular() {
			return err
		}
		// An .idx may belong to another program's files; with its .bin it stands for a shard, which the .bin names.
		if f, _ := Detect(p); f == megatronFormat && (filepath.Ext(p) != ".bin" || !exists(strings.TrimSuffix(p, ".bin")+".idx")) {
			return nil
		}
		found = append(found, match{path: p, root: root})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("walk %s: %w", dir, err)
	}
	return found, nil
}

func exists(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// notThere names what is missing and the nearest directory that is there.
func notThere(full, format string) error {
	kind := "file"
	if format != "" {
		kind = format + " file"
	}
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
	return &missing{fmt.Sprintf("no %s is there: looked for %s, nearest directory that exists is %s", kind, full, near)}
}

// missing: a file is not there. For who wrote the mixture that is a mistake; where it was there before, it may be again.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }

// Unwrap returns both of its classes.
func (e *missing) Unwrap() []error { return []error{millrace.ErrInvalid, fs.ErrNotExist} }
