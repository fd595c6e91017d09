package find

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"millrace"
	"millrace/sources/find/layout"
)

// energonSplits is the file of an Energon dataset that divides its archives into splits.
const energonSplits = ".nv-meta/split.yaml"

// shownArchives is the number of a split's archives, or of patterns of them, that a cure names.
const shownArchives = 3

// energonSet is the split of an Energon dataset that a path to its directory reads.
type energonSet struct {
	dir      string
	split    string
	of       map[string]string // path of an archive: its split
	excluded map[string]bool   // paths
	seen     map[string]bool   // paths of the files below the directory
}

// energonLayout returns the splits of a dataset. Without a choice, train is read.
func energonLayout(dir string, names []string) *layout.Layout {
	c := layout.Config{}
	for _, name := range names {
		c.Splits = append(c.Splits, layout.Split{Name: name, Default: name == layout.Train || len(names) == 1})
	}
	return &layout.Layout{Dir: dir, By: energonSplits, Configs: []layout.Config{c}}
}

// readEnergon returns the splits of the dataset in a directory, nil if it is no Energon dataset. The split to be read
// is the wanted one; without one it is the only split, or train. A directory without that split is refused: one source
// would read training and validation as one.
func readEnergon(dir, wanted string) (_ *energonSet, names []string, _ error) {
	path := filepath.Join(dir, energonSplits)
	content, ok, err := readSmall(path)
	if !ok || err != nil {
		return nil, names, err
	}
	var file struct {
		Parts   map[string][]string `yaml:"split_parts"`
		Exclude []string            `yaml:"exclude"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return nil, names, millrace.Errorf(millrace.ErrInvalid, "read %s: %w", path, err)
	}
	maps.DeleteFunc(file.Parts, func(_ string, archives []string) bool { return len(archives) == 0 })
	names = slices.Sorted(maps.Keys(file.Parts))
	s := &energonSet{dir: dir, split: cmp.Or(wanted, layout.Train), of: map[string]string{},
		excluded: map[string]bool{}, seen: map[string]bool{}}
	switch {
	case len(names) == 0:
		return nil, names, nil
	case len(names) == 1 && wanted == "":
		s.split = names[0]
	case !slices.Contains(names, s.split):
		return nil, names, millrace.Errorf(millrace.ErrInvalid, "%s is an Energon dataset with the splits %s, none of "+
			"which is %s: name the archives of one, as path: [%s] for %s", dir, strings.Join(names, ", "), s.split,
			shown(dir, file.Parts[names[0]]), names[0])
	}
	for _, name := range names {
		for _, pattern := range file.Parts[name] {
			archives, err := expandBraces(pattern)
			if err != nil {
				return nil, names, millrace.Errorf(millrace.ErrInvalid, "read %s: %w", path, err)
			}
			for _, a := range archives {
				s.of[filepath.Join(dir, a)] = name
			}
		}
	}
	for _, entry := range file.Exclude {
		s.excluded[filepath.Join(dir, entry)] = true
	}
	for _, entry := range file.Exclude {
		if s.isSample(entry) {
			return nil, names, millrace.Errorf(millrace.ErrInvalid, "%s excludes the sample %s, and single samples "+
				"are not left out: take them out with filter: and name the archives, as path: [%s]", path, entry,
				shown(dir, file.Parts[s.split]))
		}
	}
	return s, names, nil
}

// isSample reports whether an excluded entry is an archive that is read, and behind it a sample.
func (s *energonSet) isSample(entry string) bool {
	for at := filepath.Dir(entry); at != "." && at != "/"; at = filepath.Dir(at) {
		if archive := filepath.Join(s.dir, at); s.of[archive] == s.split {
			return !s.excluded[archive]
		}
	}
	return false
}

// shown returns the first archives of a split, as a user writes them.
func shown(dir string, archives []string) string {
	var out []string
	for _, a := range archives {
		if len(out) == shownArchives {
			out = append(out, "...")
			break
		}
		out = append(out, filepath.Join(dir, a))
	}
	return strings.Join(out, ", ")
}

// leavesOut returns the reason why a file below the directory is not read, "" if it is.
func (s *energonSet) leavesOut(path string) string {
	switch split := s.of[path]; {
	case s.excluded[path]:
		return energonSplits + " excludes it"
	case split == "":
		return energonSplits + " has it in no split"
	case split != s.split:
		return energonSplits + " has it in the split " + split
	}
	return ""
}

// missing returns an error if an archive of the split was not seen.
func (s *energonSet) missing() error {
	for _, path := range slices.Sorted(maps.Keys(s.of)) {
		if s.of[path] == s.split && !s.excluded[path] && !s.seen[path] {
			return &missing{path + " is not there, and " + filepath.Join(s.dir, energonSplits) +
				" has it in the split " + s.split + "; copy it there, or take it out of the list"}
		}
	}
	return nil
}

// energonSets are the datasets that a walk of a directory has come to.
type energonSets []*energonSet

// of returns the dataset that a file belongs to, nil if it belongs to none, and notes that the file is there.
func (all energonSets) of(path string) *energonSet {
	for _, s := range slices.Backward(all) {
		if strings.HasPrefix(path, s.dir+string(filepath.Separator)) {
			s.seen[path] = true
			return s
		}
	}
	return nil
}

// missing returns an error if an archive of a dataset was not seen.
func (all energonSets) missing() error {
	for _, s := range all {
		if err := s.missing(); err != nil {
			return err
		}
	}
	return nil
}

// checkEnergonObjects refuses an Energon dataset in a store, in which the list of its splits is not read.
func checkEnergonObjects(dir string, there map[string]bool) error {
	for url := range there {
		if set, ok := strings.CutSuffix(url, "/"+energonSplits); ok {
			return millrace.Errorf(millrace.ErrInvalid, "%s is an Energon dataset, and its split.yaml is not read "+
				"from a store: name the archives of one split in place of %s, as path: %s/train-*.tar", set, dir, set)
		}
	}
	return nil
}
