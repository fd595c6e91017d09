package find

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"millrace"
	"millrace/sources/format/registry"
)

// Tree lists the files of stores. Paths are URLs. Its errors name the URL.
type Tree interface {
	// Walk calls fn for every file whose URL begins with a prefix, until fn fails.
	Walk(prefix string, fn func(url string) error) error
	// Exists reports whether a file has this URL.
	Exists(url string) (bool, error)
	// Read returns the content of a file. A file with more bytes than most is an error.
	Read(url string, most int64) ([]byte, error)
}

// IsURL reports whether a path names a file of a store: scheme://rest.
func IsURL(path string) bool {
	scheme, _, ok := strings.Cut(path, "://")
	return ok && scheme != "" && !strings.ContainsAny(scheme, "/*?[{\\")
}

// isListed reports whether the store of a URL has lists. Web servers have none: a URL may have braces, but no other
// wildcards. A question mark begins its query.
func isListed(url string) bool {
	return !strings.HasPrefix(url, "http://") && !strings.HasPrefix(url, "https://")
}

// url finds the files of one pattern of URLs.
func (f *finder) url(pattern string) ([]match, error) {
	if f.tree == nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "this command does not read stores")
	}
	marks := wildcards
	if !isListed(pattern) {
		marks = "{"
	}
	if !strings.ContainsAny(pattern, marks) {
		found, err := f.named(pattern, "")
		if err == nil && len(found) == 0 {
			err = f.noObject(pattern)
		}
		return found, err
	}
	first := strings.IndexAny(pattern, marks)
	slash := strings.LastIndexByte(pattern[:first], '/') + 1
	root, rest := pattern[:slash], pattern[slash:]
	if strings.HasSuffix(root, "://") || strings.Count(root, "/") < 3 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "its bucket is a pattern: name the bucket")
	}
	// A key that exists as written is no pattern.
	if isListed(pattern) {
		if found, err := f.named(pattern, ""); err != nil || len(found) > 0 {
			return found, err
		}
	}
	parts, err := expandBraces(rest)
	if err != nil {
		return nil, err
	}
	var found []match
	for _, part := range parts {
		ms, err := f.alternative(root, part, len(parts) > 1)
		if err == nil && len(ms) == 0 {
			err = f.noObject(root + part)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, ms...)
	}
	return found, nil
}

// alternative finds the files of one alternative of a pattern. One of several may be a key that exists as written.
func (f *finder) alternative(root, part string, isOne bool) ([]match, error) {
	if isOne && isListed(root) && strings.ContainsAny(part, "*?[") {
		if found, err := f.named(root+part, root); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return f.objects(root, part)
}

// objects finds the files of a pattern without braces below a root, which ends with a slash.
func (f *finder) objects(root, part string) ([]match, error) {
	first := strings.IndexAny(part, "*?[")
	if first < 0 || !isListed(root) {
		return f.named(root+part, root)
	}
	if !doublestar.ValidatePattern(part) {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%q is no pattern: check its `[` and `\\`", part)
	}
	var found []match
	var all []string
	err := f.tree.Walk(root+part[:first], func(url string) error {
		name := url[len(root):]
		if isOfLog(url) {
			all = append(all, url)
		}
		if ok, err := doublestar.Match(part, name); !ok || err != nil {
			return err
		}
		if why := passesOver(name, part, f.format); why != "" {
			f.passOver(url, name, why)
			return nil
		}
		ok, err := f.wantsObject(url)
		if ok {
			found = append(found, match{path: f.shardFile(url), root: strings.TrimSuffix(root, "/")})
		}
		return err
	})
	if err == nil && len(found) > 0 {
		err = checkListed(newStored(f.tree, strings.TrimSuffix(root, "/"), all))
	}
	if err == nil && len(found) > 0 {
		err = f.checkInsideStored(parent(root + part[:first]))
	}
	return found, err
}

// named finds the files at exactly this URL: a file, the prefix of a Megatron dataset, or the files of a directory.
func (f *finder) named(url, root string) ([]match, error) {
	bare := strings.TrimSuffix(url, "/")
	root = strings.TrimSuffix(root, "/")
	if bare == url {
		names := []string{url}
		if f.format == registry.Megatron {
			names = append(names, url+".bin", url+".idx")
		}
		for _, name := range names {
			exists, err := f.tree.Exists(name)
			if err != nil {
				return nil, err
			}
			if exists {
				return []match{{path: f.shardFile(name), root: cmp.Or(root, parent(url))}}, nil
			}
		}
	}
	if !isListed(url) {
		return nil, nil
	}
	var all []string
	err := f.tree.Walk(bare+"/", func(url string) error {
		if strings.HasPrefix(url, bare+"/") { // a store may answer more than it was asked for
			all = append(all, url)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		err = f.checkInsideStored(parent(bare))
	}
	if err != nil {
		return nil, err
	}
	return f.belongingObjects(all, bare, cmp.Or(root, bare))
}

// belongingObjects returns the files of a directory that belong to the source.
func (f *finder) belongingObjects(all []string, dir, root string) ([]match, error) {
	there := make(map[string]bool, len(all))
	for _, url := range all {
		there[url] = true
	}
	if err := checkEnergonObjects(dir, there); err != nil {
		return nil, err
	}
	f.there = func(url string) bool { return there[url] }
	defer func() { f.there = exists }()
	at := newStored(f.tree, dir, all)
	var found []match
	var marked []string
	var tables []string
	for _, sub := range slices.Sorted(maps.Keys(at.in)) {
		if isBelow(sub, tables) {
			continue
		}
		if t := tableIn(at, sub); t != nil && !t.isRead() {
			return nil, t.refuse(sub)
		} else if t != nil {
			files, err := f.delta(at, sub, root, f.there)
			if err != nil {
				return nil, err
			}
			tables, found = append(tables, sub), append(found, files...)
			continue
		}
		if isMarked(at, sub) {
			marked = append(marked, sub)
		}
	}
	for _, url := range all {
		if isBelow(url, tables) {
			continue
		}
		name := url[len(dir)+1:]
		if why := LeftOutName(name, f.format); why != "" {
			f.passOver(url, name, why)
			continue
		}
		ok, err := f.belongsByName(url)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, match{path: url, root: root})
		}
	}
	return f.divide(at, dir, found, marked)
}

// isBelow reports whether a URL is below one of some directories.
func isBelow(url string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(url, dir+"/") })
}

// wantsObject is wants for a file of a store.
func (f *finder) wantsObject(url string) (bool, error) {
	f.there = func(other string) bool {
		exists, err := f.tree.Exists(other)
		return err == nil && exists
	}
	defer func() { f.there = exists }()
	return f.wants(url)
}

// parent returns the URL without its last part.
func parent(url string) string {
	return strings.TrimSuffix(url[:strings.LastIndexByte(url, '/')+1], "/")
}

// noObject returns the error of a URL without files.
func (f *finder) noObject(url string) error {
	text := "no " + f.format + " file is there: looked for " + url
	if path.Ext(parent(url)) == "" && isListed(url) {
		text += "; list the bucket with its own tool to see its keys"
	}
	return &missing{text + f.skippedHint()}
}
