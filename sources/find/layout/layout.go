// Package layout says which parts of a data set the layout of a directory names, and chooses one. It reads no file.
package layout

import (
	"encoding/json"
	"fmt"
	"strings"

	"millrace"
)

// Train is the split of a data set that names none.
const Train = "train"

// Layout says which parts of a data set a directory has. A source reads one of them.
type Layout struct {
	Dir     string
	By      string // the file of the directory that names the parts, "" if the names of its files do
	Configs []Config
	Rest    []string // files of no split
}

// Config is a configuration of a data set. It has no name if the data set has only one.
type Config struct {
	Name    string
	Default bool // the data set says that it is read if none is chosen
	Splits  []Split
}

// Split is a part of a configuration.
type Split struct {
	Name     string
	Files    int  // of the source's format
	Default  bool // it is read if none is chosen
	patterns []string
	has      func(name string) bool // decides by a path below the directory
}

// Dict returns the layout that the dataset_dict.json of a directory says, nil if it names no split.
func Dict(dir, file string, text []byte) (*Layout, error) {
	var dict struct {
		Splits []string `json:"splits"`
	}
	if err := json.Unmarshal(text, &dict); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read %s/%s: %w", dir, file, err)
	}
	if len(dict.Splits) == 0 {
		return nil, nil
	}
	var c Config
	for _, split := range dict.Splits {
		c.Splits = append(c.Splits, Split{Name: split, has: func(name string) bool {
			return strings.HasPrefix(name, split+"/")
		}})
	}
	return &Layout{Dir: dir, By: file, Configs: []Config{c}}, nil
}

// Named returns the layout that the names of the files below a directory say, nil if they say none.
func Named(dir string, names []string) *Layout {
	splits := byNames(names)
	if splits == nil {
		return nil
	}
	return &Layout{Dir: dir, Configs: []Config{{Splits: splits}}}
}

// Has reports whether a file is of the split, by its path below the directory.
func (s Split) Has(name string) bool { return s.has(name) }

// written returns the patterns of the split for people.
func (s Split) written() string {
	if len(s.patterns) == 0 {
		return ""
	}
	return ": nothing matches " + strings.Join(s.patterns, ", ")
}

// Count sets the numbers of files of the splits and the files of no split, by the paths of the files below the
// directory.
func (l *Layout) Count(names []string) {
	for _, name := range names {
		some := false
		for i := range l.Configs {
			for j := range l.Configs[i].Splits {
				if s := &l.Configs[i].Splits[j]; s.has(name) {
					s.Files++
					some = true
				}
			}
		}
		if !some {
			l.Rest = append(l.Rest, name)
		}
	}
}

// Choose returns the chosen part: the wanted one, the default one, or the only one.
func (l *Layout) Choose(config, split string) (*Config, Split, error) {
	c, err := l.config(config)
	if err != nil {
		return nil, Split{}, err
	}
	var names, counts []string
	for _, s := range c.Splits {
		if s.Name == split {
			return c, s, nil
		}
		names, counts = append(names, s.Name), append(counts, s.Name+" ("+counted(s.Files)+")")
	}
	if split == "" && len(c.Splits) == 1 {
		return c, c.Splits[0], nil
	}
	of := l.Dir
	if c.Name != "" {
		of = "configuration " + c.Name + " of " + l.Dir
	}
	if split != "" {
		return nil, Split{}, millrace.Errorf(millrace.ErrInvalid, "%s has no split %s: write one of %s as `split:`", of,
			split, strings.Join(names, ", "))
	}
	if len(names) == 0 {
		return nil, Split{}, millrace.Errorf(millrace.ErrInvalid, "%s has no split: name the files themselves", of)
	}
	return nil, Split{}, millrace.Errorf(millrace.ErrInvalid, "%s has the splits %s, as %s: write one of them, "+
		"as `split: %s`, or name the files that are meant by a pattern", of, strings.Join(counts, ", "), l.says(),
		names[0])
}

func counted(files int) string {
	if files == 1 {
		return "1 file"
	}
	return fmt.Sprint(files, " files")
}

// says names the cause of a layout.
func (l *Layout) says() string {
	if l.By == "" {
		return "the names of its files say"
	}
	return l.By + " says"
}

// config returns the wanted configuration, the default one or the only one.
func (l *Layout) config(wanted string) (*Config, error) {
	var names []string
	var chosen *Config
	several := false
	for i := range l.Configs {
		c := &l.Configs[i]
		if c.Name == wanted && wanted != "" {
			return c, nil
		}
		if wanted == "" && (c.Default || len(l.Configs) == 1) {
			several = chosen != nil
			chosen = c
		}
		names = append(names, c.Name)
	}
	all := strings.Join(names, ", ")
	switch {
	case chosen != nil && !several:
		return chosen, nil
	case wanted != "" && all == "":
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s has no configurations, so none is %s: leave `config` out",
			l.Dir, wanted)
	case wanted != "":
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s has no configuration %s: write one of %s as `config:`",
			l.Dir, wanted, all)
	}
	return nil, millrace.Errorf(millrace.ErrInvalid, "%s has the configurations %s, as %s: write one of them, as "+
		"`config: %s`", l.Dir, all, l.says(), names[0])
}

// WhyNot returns the reason why a file is not read when this configuration was chosen.
func (c *Config) WhyNot(name, by string) string {
	for _, s := range c.Splits {
		if s.has(name) {
			return "it is of the split " + s.Name
		}
	}
	if by == "" {
		return "its name says no split"
	}
	return by + " has it in no split of the chosen part"
}

// Title names a part for people.
func (c *Config) Title(split Split) string {
	if c.Name == "" {
		return "the split " + split.Name + split.written()
	}
	return "the split " + split.Name + " of configuration " + c.Name + split.written()
}
