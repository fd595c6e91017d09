package layout

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/goccy/go-yaml"

	"millrace"
)

// hubCard is the page of a data set of the Hugging Face hub. It begins with YAML.
const hubCard = "README.md"

// Cards returns the files in which a data set of the Hugging Face hub names its configurations. The first one wins.
func Cards() []string { return []string{".huggingface.yaml", hubCard} }

// hubConfig is a configuration as the card of a dataset has it.
type hubConfig struct {
	Name    string `yaml:"config_name"`
	Files   any    `yaml:"data_files"`
	Dir     string `yaml:"data_dir"`
	Default bool   `yaml:"default"`
}

// Card returns the layout that the card of a directory says, nil if it says none. file is one of Cards, text is its
// content, and names are the files below the directory that may be data.
func Card(dir, file string, text []byte, names []string) (*Layout, error) {
	refuse := func(format string, args ...any) error {
		return millrace.Errorf(millrace.ErrInvalid, "read %s/%s: %s; mend it, or name the files themselves", dir, file,
			fmt.Sprintf(format, args...))
	}
	ok := true
	if file == hubCard {
		text, ok = frontMatter(string(text))
	}
	var card struct {
		Configs []hubConfig `yaml:"configs"`
	}
	if !ok || !strings.Contains(string(text), "configs") {
		return nil, nil
	}
	if err := yaml.Unmarshal(text, &card); err != nil {
		return nil, refuse("its YAML cannot be read: %v", err)
	}
	if len(card.Configs) == 0 {
		return nil, nil
	}
	l := &Layout{Dir: dir, By: file}
	for _, c := range card.Configs {
		if c.Name == "" {
			return nil, refuse("a configuration has no config_name")
		}
		if slices.ContainsFunc(l.Configs, func(before Config) bool { return before.Name == c.Name }) {
			return nil, refuse("configuration %q stands there twice", c.Name)
		}
		splits, wrong := c.splits(names)
		if wrong != "" {
			return nil, refuse("configuration %q %s", c.Name, wrong)
		}
		l.Configs = append(l.Configs, Config{Name: c.Name, Default: c.Default || c.Name == "default", Splits: splits})
	}
	return l, nil
}

// frontMatter returns the YAML between the lines `---` at the beginning of a page.
func frontMatter(page string) ([]byte, bool) {
	page = strings.ReplaceAll(strings.TrimPrefix(page, "\ufeff"), "\r\n", "\n")
	rest, ok := strings.CutPrefix(page, "---\n")
	if !ok {
		return nil, false
	}
	if strings.HasPrefix(rest, "---\n") || rest == "---" {
		return nil, true
	}
	head, _, ok := strings.Cut(rest+"\n", "\n---\n")
	return []byte(head + "\n"), ok
}

// splits returns the splits of a configuration. Without files of its own, the names of the files say them.
func (c *hubConfig) splits(names []string) (splits []Split, wrong string) {
	dir := path.Clean(c.Dir)
	if strings.HasPrefix(dir, "..") || path.IsAbs(dir) {
		return nil, fmt.Sprintf("has the data_dir %q, which is not below the dataset", c.Dir)
	}
	if c.Files == nil {
		var inside []string
		for _, name := range names {
			if rest, ok := belowDir(name, dir); ok {
				inside = append(inside, rest)
			}
		}
		splits = byNames(inside)
		if splits == nil {
			splits = []Split{{Name: Train, has: func(string) bool { return true }}}
		}
	} else if splits, wrong = patternSplits(c.Files); wrong != "" {
		return nil, wrong
	}
	for i := range splits {
		has := splits[i].has
		splits[i].has = func(name string) bool {
			rest, ok := belowDir(name, dir)
			return ok && has(rest)
		}
	}
	return splits, ""
}

// belowDir returns a name relative to a directory of the dataset. `.` is the dataset itself.
func belowDir(name, dir string) (string, bool) {
	if dir == "." {
		return name, true
	}
	return strings.CutPrefix(name, dir+"/")
}

// patternSplits returns the splits of data_files: a pattern, a list of patterns, or a list of splits with patterns.
func patternSplits(files any) (splits []Split, wrong string) {
	list, isList := files.([]any)
	if text, ok := files.(string); ok {
		list, isList = []any{text}, true
	}
	if !isList {
		return nil, "has data_files that are no list of patterns or of splits"
	}
	var plain []string
	for _, item := range list {
		switch item := item.(type) {
		case string:
			plain = append(plain, item)
		case map[string]any:
			name, patterns, ok := splitOf(item)
			if !ok {
				return nil, "has an entry of data_files without `split` and `path`"
			}
			if slices.ContainsFunc(splits, func(s Split) bool { return s.Name == name }) {
				return nil, fmt.Sprintf("has the split %q twice", name)
			}
			splits = append(splits, Split{Name: name, patterns: patterns})
		default:
			return nil, "has data_files that are no list of patterns or of splits"
		}
	}
	switch {
	case len(plain) > 0 && len(splits) > 0:
		return nil, "has data_files with patterns beside splits"
	case len(plain) > 0:
		splits = []Split{{Name: Train, patterns: plain}}
	}
	for i := range splits {
		patterns := splits[i].patterns
		for j, p := range patterns {
			patterns[j] = strings.TrimPrefix(p, "./")
			if p = patterns[j]; strings.Contains(p, "::") || strings.Contains(p, "://") || path.IsAbs(p) ||
				strings.HasPrefix(p, "../") || !doublestar.ValidatePattern(plainBraces(p)) {
				return nil, fmt.Sprintf("has the pattern %q, which is none of files below the dataset", p)
			}
		}
		splits[i].has = func(name string) bool {
			return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
		}
	}
	return splits, ""
}

// splitOf reads an entry of data_files.
func splitOf(entry map[string]any) (name string, patterns []string, ok bool) {
	name, ok = entry["split"].(string)
	if !ok || len(entry) != 2 {
		return "", nil, false
	}
	switch at := entry["path"].(type) {
	case string:
		return name, []string{at}, true
	case []any:
		for _, p := range at {
			text, isText := p.(string)
			if !isText {
				return "", nil, false
			}
			patterns = append(patterns, text)
		}
		return name, patterns, true
	}
	return "", nil, false
}

// matches reports whether a name matches a pattern of a card. Braces and backslashes stand for themselves there.
func matches(pattern, name string) bool {
	ok, err := doublestar.Match(plainBraces(pattern), name)
	return ok && err == nil
}

func plainBraces(pattern string) string {
	return strings.NewReplacer(`\`, `\\`, "{", `\{`, "}", `\}`).Replace(pattern)
}
