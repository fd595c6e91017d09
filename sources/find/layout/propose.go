package layout

import (
	"fmt"
	"slices"
	"strings"
)

// Propose returns the part for a source that chose none: the default configuration or else the first, and of it the
// split for training or else the first. A name that need not be chosen is empty.
func (l *Layout) Propose() (config, split string) {
	c, err := l.config("")
	if err != nil {
		c = &l.Configs[0]
		config = c.Name
	}
	if len(c.Splits) == 0 {
		return config, ""
	}
	s := c.Splits[0]
	isTrained := func(s Split) bool { return s.Name == Train }
	if i := slices.IndexFunc(c.Splits, isTrained); i >= 0 {
		s = c.Splits[i]
	}
	if len(c.Splits) > 1 || l.By == "" && len(l.Rest) > 0 && s.Name == Train {
		split = s.Name
	}
	return config, split
}

// LeftOut lists the parts that a source of this part leaves out, by the keys that choose them. It is empty if the
// source reads everything.
func (l *Layout) LeftOut(config, split string) string {
	c, s, err := l.Choose(config, split)
	if err != nil {
		return ""
	}
	var others []string
	for _, other := range l.Configs {
		for _, part := range other.Splits {
			if other.Name != c.Name || part.Name != s.Name {
				others = append(others, l.keys(other.Name, part.Name)+" ("+counted(part.Files)+")")
			}
		}
	}
	if len(l.Rest) > 0 {
		others = append(others, fmt.Sprintf("%s of no split, the first is %s", counted(len(l.Rest)), l.Rest[0]))
	}
	if len(others) == 0 {
		return ""
	}
	return "only " + l.keys(c.Name, s.Name) + " of " + l.Dir + " is read, as " + l.says() + "; left out: " +
		strings.Join(others, ", ")
}

// keys writes a part as the mixture file has it.
func (l *Layout) keys(config, split string) string {
	if len(l.Configs) == 1 {
		return "`split: " + split + "`"
	}
	return "`config: " + config + ", split: " + split + "`"
}
