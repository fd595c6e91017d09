package find

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"millrace"
	"millrace/sources/find/layout"
	"millrace/sources/format/registry"
)

// Parts returns the layouts of the directories that the patterns of a query lead to, without a choice. Directories
// without parts are not among them.
func Parts(tree Tree, q Query) ([]*layout.Layout, error) {
	f := newFinder(tree, q)
	f.only = true
	for _, pattern := range q.Patterns {
		if _, err := f.pattern(pattern); err != nil {
			return nil, fmt.Errorf("resolve path %q: %w", pattern, err)
		}
	}
	return f.layouts, nil
}

// divide returns the files of a directory that belong to the chosen part of each layout in it. marked are the
// directories with a file that names parts.
func (f *finder) divide(at folders, dir string, found []match, marked []string) ([]match, error) {
	names := make([]string, len(found))
	for i, m := range found {
		names[i] = strings.TrimPrefix(strings.TrimPrefix(m.path, dir), "/")
	}
	layouts, err := f.layoutsOf(at, dir, names, marked)
	if err != nil {
		return nil, err
	}
	for _, l := range layouts {
		if found, err = f.take(l, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// layoutsOf returns the layouts of a directory, or those of the directories below it if it has none.
func (f *finder) layoutsOf(at folders, dir string, names, marked []string) (all []*layout.Layout, err error) {
	slices.Sort(marked)
	for _, mark := range slices.Compact(marked) {
		var inside []string
		for _, name := range names {
			if rest, ok := strings.CutPrefix(below(dir, name), strings.TrimSuffix(mark, "/")+"/"); ok {
				inside = append(inside, rest)
			}
		}
		l, err := readLayout(at, mark, inside)
		if err != nil {
			return nil, err
		}
		if l != nil {
			all = append(all, l)
		}
		if l != nil && mark == dir {
			return all, nil
		}
	}
	if len(all) == 0 && f.isNamed(at, dir) {
		if l := layout.Named(dir, names); l != nil {
			all = append(all, l)
		}
	}
	return all, nil
}

// isNamed reports whether the names of files in a directory may say splits: not if a file lists them, and not in a tree
// of texts.
func (f *finder) isNamed(at folders, dir string) bool {
	names := at.names(dir)
	return f.format != registry.Text && f.format != registry.Lengths && !slices.Contains(names, savedSet) &&
		!(slices.Contains(names, registry.IndexName) && f.isIndex(below(dir, registry.IndexName)))
}

// readLayout returns the layout that a file of a directory names, nil if none does.
func readLayout(at folders, dir string, names []string) (*layout.Layout, error) {
	for _, file := range append(layout.Cards(), savedSplit) {
		text, ok, err := at.read(below(dir, file))
		if err != nil {
			return nil, err
		}
		var l *layout.Layout
		switch {
		case !ok:
			continue
		case file == savedSplit:
			l, err = layout.Dict(dir, file, text)
		default:
			l, err = layout.Card(dir, file, text, names)
		}
		if l != nil || err != nil {
			return l, err
		}
	}
	return nil, nil
}

// take returns the files without those of other parts of a layout. It fails if the layout has several parts and the
// query chose none.
func (f *finder) take(l *layout.Layout, found []match) ([]match, error) {
	inside := func(m match) (string, bool) {
		return strings.CutPrefix(m.path, strings.TrimSuffix(l.Dir, "/")+"/")
	}
	var names []string
	for _, m := range found {
		if name, ok := inside(m); ok {
			names = append(names, name)
		}
	}
	l.Count(names)
	f.layouts = append(f.layouts, l)
	if f.only {
		return found, nil
	}
	config, split, err := l.Choose(f.config, f.split)
	if err != nil {
		return nil, err
	}
	if l.By == "" && f.split == "" && len(l.Rest) > 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "files of %s name the split %s, and files of no split lie "+
			"beside them: %d, the first is %s: write `split: %s`, or name the files by a pattern, as path: %s", l.Dir,
			split.Name, len(l.Rest), below(l.Dir, l.Rest[0]), split.Name, below(l.Dir, "*"+path.Ext(l.Rest[0])))
	}
	f.isDivided = true
	read := 0
	found = slices.DeleteFunc(found, func(m match) bool {
		name, ok := inside(m)
		switch {
		case !ok:
			return false
		case split.Has(name):
			read++
			return false
		}
		f.skip(m.path, "%s", config.WhyNot(name, l.By))
		return true
	})
	if read == 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s has no %s file of %s", l.Dir, f.format,
			config.Title(split))
	}
	return found, nil
}

// unused returns an error if the query chose a part and no directory has parts.
func (f *finder) unused() error {
	for _, asked := range [][2]string{{"config", f.config}, {"split", f.split}} {
		if asked[1] != "" && !f.isDivided {
			return millrace.Errorf(millrace.ErrInvalid, "find the %s %s: no path leads to a directory that has parts: "+
				"name the directory of the data set, or leave `%s` out", asked[0], asked[1], asked[0])
		}
	}
	if f.version != nil && len(f.versions) == 0 {
		return millrace.Errorf(millrace.ErrInvalid, "find version %d: no path leads to the directory of a Delta "+
			"table: name it, or leave `version` out", *f.version)
	}
	return nil
}
