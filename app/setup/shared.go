package setup

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"millrace"
	"millrace/app/config"
	"millrace/sources"
	"millrace/sources/find"
)

// Use is a file that a source reads.
type Use struct {
	Stream, Source string
	Path           string
	Content        millrace.Digest // zero: not known
	Filtered       bool            // the source has a filter, so other sources may read the other records
}

// name returns the source as warnings name it.
func (u *Use) name() string {
	if u.Stream == string(millrace.Train) {
		return u.Source
	}
	return u.Source + " of stream " + u.Stream
}

// Shared returns a warning for each set of sources that read the same files: the same path, another path of the same
// file, or files with the same content. Sources of one stream that all have filters divide a file between them, so
// they get none.
func Shared(uses []Use) (warnings []string) {
	groups := map[string][]Use{}
	for _, u := range uses {
		for _, key := range u.keys() {
			groups[key] = append(groups[key], u)
		}
	}
	files := map[string][]string{} // paths, by the names of the sources
	for _, group := range groups {
		names := []string{}
		for _, u := range group {
			names = append(names, u.name())
		}
		slices.Sort(names)
		names = slices.Compact(names)
		if len(names) < 2 || divides(group) {
			continue
		}
		paths := []string{}
		for _, u := range group {
			paths = append(paths, u.Path)
		}
		slices.Sort(paths)
		key := strings.Join(names, " and ")
		files[key] = append(files[key], strings.Join(slices.Compact(paths), " = "))
	}
	for names, paths := range files {
		slices.Sort(paths)
		paths = slices.Compact(paths)
		warnings = append(warnings, fmt.Sprintf("%s read the same files: %d; the first is %s", names, len(paths),
			paths[0]))
	}
	slices.Sort(warnings)
	return warnings
}

// keys returns what two uses of a file have in common.
func (u *Use) keys() []string {
	key := "path " + u.Path
	if st, err := os.Stat(u.Path); err == nil { // not a URL
		if sys, ok := st.Sys().(*syscall.Stat_t); ok {
			key = fmt.Sprintf("inode %d %d", sys.Dev, sys.Ino)
		}
	}
	if u.Content == (millrace.Digest{}) {
		return []string{key}
	}
	return []string{key, "content " + u.Content.String()}
}

// divides reports whether a group of uses is of one stream, and all have filters.
func divides(group []Use) bool {
	return !slices.ContainsFunc(group, func(u Use) bool { return !u.Filtered || u.Stream != group[0].Stream })
}

// Uses returns the local files that the sources of a stream read, without their content. It leaves out paths that
// cannot be resolved: the loaders report them, or wait for them.
func Uses(stream string, c *config.Config) (uses []Use) {
	for i := range c.Sources {
		s := &c.Sources[i]
		if s.IsRemote() {
			continue
		}
		spec, err := SourceSpec(c, s, nil, nil)
		if err != nil {
			continue
		}
		found, err := find.Resolve(nil, spec.Query(sources.OSFS()))
		if err != nil {
			continue
		}
		for _, f := range found.Files {
			uses = append(uses, Use{Stream: stream, Source: s.Name, Path: f.Path, Filtered: s.Filter != ""})
		}
	}
	return uses
}
