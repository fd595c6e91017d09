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

	"github.com/bmatcuk/doublestar/v4"

	"millrace/sources/format/registry"
)

// Format returns the format of a source by its path patterns. The content of files decides it. Where files show none,
// or are not there, the text of a pattern decides it. For directories, prefixes and open patterns, the names of the
// files decide it. Relative patterns start at base. If base is empty, Format looks at no file.
func Format(base string, patterns []string) (format string, _ *Unclear) {
	for _, pattern := range patterns {
		found, why := patternFormat(pattern)
		if why != nil {
			return "", why
		}
		seen, why := look(base, pattern, found)
		found = cmp.Or(seen, found)
		switch {
		case why != nil:
			return "", why
		case found == "":
			return "", unknown(base, pattern)
		case format == "":
			format = found
		case format != found:
			return "", several(format, found)
		}
	}
	return format, nil
}

// Unclear is the reason why a source has no format. The subject of its sentence is the format.
type Unclear struct{ Why, Cure string }

func unclear(why string, args ...any) *Unclear {
	return &Unclear{fmt.Sprintf(why, args...), cure()}
}

// unknown returns the reason why no format follows from a pattern.
func unknown(base, pattern string) *Unclear {
	why := unclear("does not follow from `%s`", pattern)
	if base == "" || IsURL(pattern) || strings.ContainsAny(pattern, wildcards) {
		return why
	}
	full := pattern
	if !filepath.IsAbs(full) {
		full = filepath.Join(base, full)
	}
	if _, err := os.Stat(full); errors.Is(err, fs.ErrNotExist) {
		return &Unclear{why.Why + ", where no file is",
			cmp.Or(notFetched(full), "correct the path, or copy the data there")}
	}
	if t := tableIn(local{}, full); t != nil && !t.isRead() {
		return &Unclear{fmt.Sprintf("is that of a table of %s in `%s`, and its log says which of its files hold its "+
			"rows; that log is not read", t.name, pattern), t.cure}
	}
	head, _, err := readSmall(full)
	if err != nil { // a large file, or a directory
		return why
	}
	if what, cure := placeholder(head, int64(len(head))); what != "" {
		return &Unclear{fmt.Sprintf("does not follow from `%s`: it is %s in place of the file", pattern, what), cure}
	}
	return why
}

func several(one, other string) *Unclear {
	return &Unclear{
		fmt.Sprintf("is not one: there are %s and %s files", one, other),
		"make a source of each format, with a `path` that matches its files alone",
	}
}

// patternFormat returns the format of all alternatives of a pattern, "" if one has none or they differ.
func patternFormat(pattern string) (format string, _ *Unclear) {
	open := strings.IndexByte(pattern, '{')
	end := strings.IndexByte(pattern, '}')
	if open < 0 || end < open || strings.ContainsAny(pattern[open+1:end], "{\\") {
		k := kindOf(strings.TrimSuffix(pattern, "*"))
		if k.unread != "" {
			return "", &Unclear{
				fmt.Sprintf("is %s packed with %s in `%s`, which is not read", k.format, k.unread, pattern),
				unpackCure(k.format),
			}
		}
		return k.format, nil
	}
	if strings.Count(pattern, "{") > maxBraces {
		return "", nil
	}
	for i, alternative := range strings.Split(pattern[open+1:end], ",") {
		found, why := patternFormat(pattern[:open] + alternative + pattern[end+1:])
		if found == "" || i > 0 && found != format {
			return "", why
		}
		format = found
	}
	return format, nil
}

// maxBraces is the largest number of brace lists in a pattern whose text decides the format.
const maxBraces = 4

// maxLooked is the largest number of directory entries that look reads. It ignores the others.
const maxLooked = 10_000

// errDone ends a walk.
var errDone = errors.New("seen enough")

// look returns the one format of the files that a pattern leads to. byText is the format that the pattern's text shows;
// with it, look reads names only to find files with content. Files of weak names count if there are no others.
func look(base, pattern, byText string) (format string, why *Unclear) {
	if base == "" || strings.Contains(pattern, "://") {
		return "", nil
	}
	full, dir, rest := pattern, "", ""
	if strings.ContainsAny(pattern, wildcards) {
		dir, rest = splitRoot(pattern)
	}
	if !filepath.IsAbs(pattern) {
		full, dir = filepath.Join(base, full), filepath.Join(base, dir)
	}
	if st, err := os.Stat(full); err == nil && st.IsDir() {
		return lookBelow(full, "**", "", true)
	} else if err == nil {
		return byContent(full), nil
	} else if exists(full + ".idx") {
		return registry.Megatron, nil
	} else if rest == "" {
		return "", nil
	}
	return lookBelow(dir, rest, byText, false)
}

// lookBelow returns the one format of the files of a glob below a directory. Only files that a source of the directory
// would read count: in a directory, those with a name of a format.
func lookBelow(dir, glob, byText string, named bool) (format string, why *Unclear) {
	var s seen
	err := doublestar.GlobWalk(os.DirFS(dir), glob, func(name string, d fs.DirEntry) error {
		if s.entries++; s.entries > maxLooked || byText != "" && len(s.samples) == mostSamples {
			return errDone
		}
		if d.IsDir() || passesOver(name, glob, "") != "" {
			return nil
		}
		return s.file(dir, name, named)
	})
	if err != nil && !errors.Is(err, errDone) {
		return "", nil // the same error comes up when the pattern is resolved
	}
	if s.dataset != "" {
		return s.dataset, nil
	}
	if s.byName == "" {
		s.byName, s.samples = s.weak, append(s.weakSamples, s.samples...)
	}
	if byText == "" && s.other != "" {
		return "", several(s.byName, s.other)
	}
	shown := ""
	for _, path := range s.samples[:min(len(s.samples), mostSamples)] {
		found := byContent(path)
		if shown != "" && found != "" && found != shown {
			return "", several(shown, found)
		}
		shown = cmp.Or(shown, found)
	}
	return cmp.Or(shown, s.byName), nil
}

// FormatIn returns the format of the files of a store that a URL leads to, by their names. The URL's own text comes
// first.
func FormatIn(tree Tree, url string) (format string, why *Unclear, err error) {
	format, why = patternFormat(url)
	if format != "" || why != nil || !isListed(url) {
		return format, why, nil
	}
	root := strings.TrimSuffix(url, "/") + "/"
	if first := strings.IndexAny(url, wildcards); first >= 0 {
		root = url[:strings.LastIndexByte(url[:first], '/')+1]
	}
	var s seen
	err = tree.Walk(root, func(file string) error {
		name := strings.TrimPrefix(file, root)
		if s.entries++; s.entries > maxLooked {
			return errDone
		}
		if LeftOutName(name, "") != "" {
			return nil
		}
		if path.Base(name) == registry.IndexName {
			if text, err := tree.Read(file, mostState); err == nil && s.index(registry.Head{Path: name, Bytes: text}) {
				return errDone
			}
		}
		return s.named(kindOf(name), file, true)
	})
	if err != nil && !errors.Is(err, errDone) {
		return "", nil, err
	}
	switch format = cmp.Or(s.dataset, s.byName, s.weak); {
	case s.dataset == "" && s.other != "":
		return "", several(s.byName, s.other), nil
	case s.entries == 0:
		return "", &Unclear{fmt.Sprintf("does not follow from `%s`, where no file is", url), "correct the path"}, nil
	case format == "":
		return "", unclear("does not follow from `%s`", url), nil
	}
	return format, nil, nil
}

// mostSamples is the number of files of a directory or a glob whose content is looked at.
const mostSamples = 4

// seen has the facts of the names below a directory.
type seen struct {
	entries      int
	byName, weak string   // formats by strong names, and by weak ones
	dataset      string   // the format of the first index.json that lists shards
	other        string   // a second format by a strong name
	samples      []string // the first files
	weakSamples  []string
}

func (s *seen) file(dir, name string, named bool) error {
	full := filepath.Join(dir, name)
	if filepath.Base(name) == registry.IndexName {
		if row := registry.Named(byContent(full)); row != nil && row.Shards != nil {
			s.dataset = string(row.Name)
			return errDone
		}
	}
	if strings.HasSuffix(name, ".csv.gz") && exists(strings.TrimSuffix(full, ".csv.gz")+".npy") { // of OLMo
		return nil
	}
	return s.named(kindOf(name), full, named)
}

// index reports whether a file is an index.json that lists shards, and notes the format.
func (s *seen) index(h registry.Head) bool {
	row := registry.Shown(h, "")
	if row == nil || row.Shards == nil {
		return false
	}
	s.dataset = string(row.Name)
	return true
}

// named notes a file by its name. With named, a name without a format does not count.
func (s *seen) named(k kind, full string, named bool) error {
	switch {
	case k.side, k.unread != "", named && k.format == "":
	case k.weak:
		s.weak = k.format
		s.weakSamples = sampled(s.weakSamples, full)
	case k.format != "" && s.byName != "" && k.format != s.byName:
		s.other = k.format
		return errDone
	default:
		s.byName = cmp.Or(s.byName, k.format)
		s.samples = sampled(s.samples, full)
	}
	return nil
}

func sampled(files []string, full string) []string {
	if len(files) < mostSamples {
		files = append(files, full)
	}
	return files
}
