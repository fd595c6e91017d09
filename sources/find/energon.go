package find

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"millrace"
)

// energonSplits is the file of an Energon dataset that divides its archives into splits.
const energonSplits = ".nv-meta/split.yaml"

// shownArchives is the number of a split's archives, or of patterns of them, that a cure names.
const shownArchives = 3

// checkEnergon refuses a directory of several splits, because one source would read training and validation as one.
func checkEnergon(dir string) error {
	path := filepath.Join(dir, energonSplits)
	content, ok, err := readSmall(path)
	if !ok || err != nil {
		return err
	}
	var file struct {
		Parts map[string][]string `yaml:"split_parts"`
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		return millrace.Errorf(millrace.ErrInvalid, "read %s: %w", path, err)
	}
	maps.DeleteFunc(file.Parts, func(_ string, archives []string) bool { return len(archives) == 0 })
	if len(file.Parts) < 2 {
		return nil
	}
	names := slices.Sorted(maps.Keys(file.Parts))
	first := names[0]
	if slices.Contains(names, "train") {
		first = "train"
	}
	var archives []string
	for _, a := range file.Parts[first] {
		if len(archives) == shownArchives {
			archives = append(archives, "...")
			break
		}
		archives = append(archives, filepath.Join(dir, a))
	}
	return millrace.Errorf(millrace.ErrInvalid, "%s is an Energon dataset with the splits %s: name the archives of "+
		"one, as path: [%s] for %s", dir, strings.Join(names, ", "), strings.Join(archives, ", "), first)
}
