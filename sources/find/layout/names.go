package layout

import (
	"regexp"
	"slices"
	"strings"
)

// The rules of Hugging Face `datasets` for the splits that names of files and directories say, in its order: numbered
// files of data/, then directories, then files.

// keywords are the words that name a split.
type keywords struct {
	split string
	words []string
}

func splitKeywords() []keywords {
	return []keywords{
		{"train", []string{"train", "training"}},
		{"validation", []string{"validation", "valid", "dev", "val"}},
		{"test", []string{"test", "testing", "eval", "evaluation"}},
	}
}

// numbered is the name of a file of data/ with its split.
var numbered = regexp.MustCompile(`^data/([^/]+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*$`)

// byNames returns the splits that the names of files below a directory say, none if they say none.
func byNames(names []string) []Split {
	if splits := bySharded(names); splits != nil {
		return splits
	}
	inDirectory := func(name, word string) bool {
		parts := strings.Split(name, "/")
		return slices.ContainsFunc(parts[:len(parts)-1], func(part string) bool { return hasWord(part, word, true) })
	}
	inFile := func(name, word string) bool { return hasWord(name[strings.LastIndexByte(name, '/')+1:], word, false) }
	for _, has := range []func(name, word string) bool{inDirectory, inFile} {
		if splits := byWords(names, has); splits != nil {
			return splits
		}
	}
	return nil
}

// bySharded returns the splits of the numbered files of data/.
func bySharded(names []string) []Split {
	var splits []Split
	for _, name := range names {
		m := numbered.FindStringSubmatch(name)
		if m == nil || slices.ContainsFunc(splits, func(s Split) bool { return s.Name == m[1] }) {
			continue
		}
		split := m[1]
		splits = append(splits, Split{Name: split, has: func(name string) bool {
			m := numbered.FindStringSubmatch(name)
			return m != nil && m[1] == split
		}})
	}
	slices.SortFunc(splits, func(a, b Split) int {
		if byRank := rankOf(a.Name) - rankOf(b.Name); byRank != 0 {
			return byRank
		}
		return strings.Compare(a.Name, b.Name)
	})
	return splits
}

// rankOf puts the usual splits first.
func rankOf(split string) int {
	all := splitKeywords()
	for i := range all {
		if all[i].split == split {
			return i
		}
	}
	return len(all)
}

// byWords returns the splits of which a name has a word.
func byWords(names []string, has func(name, word string) bool) []Split {
	var splits []Split
	for _, k := range splitKeywords() {
		isOf := func(name string) bool {
			return slices.ContainsFunc(k.words, func(word string) bool { return has(name, word) })
		}
		if slices.ContainsFunc(names, isOf) {
			splits = append(splits, Split{Name: k.split, has: isOf})
		}
	}
	return splits
}

// hasWord reports whether a part of a path has a word between separators. The word may end a directory's name; in a
// file's name more must follow it.
func hasWord(part, word string, mayEnd bool) bool {
	const separators = "-._ 0123456789"
	isApart := func(at int) bool { return strings.IndexByte(separators, part[at]) >= 0 }
	for from := 0; ; from++ {
		i := strings.Index(part[from:], word)
		if i < 0 {
			return false
		}
		from += i
		end := from + len(word)
		if (from == 0 || isApart(from-1)) && (end == len(part) && mayEnd || end < len(part) && isApart(end)) {
			return true
		}
	}
}
