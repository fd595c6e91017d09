package find

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Format returns the format of a source by its path patterns. The text of a pattern decides it. For directories,
// prefixes and open patterns, the names of the files decide it. Relative patterns start at base. If base is empty,
// Format looks at no file.
func Format(base string, patterns []string) (format string, _ *Unclear) {
	for _, pattern := range patterns {
		found, why := patternFormat(pattern)
		if why == nil && found == "" {
			found, why = look(base, pattern)
		}
		switch {
		case why != nil:
			return "", why
		case found == "":
			return "", unclear("does not follow from `%s`", pattern)
		case format == "":
			format = found
		case format != found:
			return "", unclear("is not one: %s and %s", format, found)
		}
	}
	return format, nil
}

// Unclear is the reason why a source has no format. The subject of its sentence is the format.
type Unclear struct{ Why, Cure string }

func unclear(why string, args ...any) *Unclear {
	return &Unclear{fmt.Sprintf(why, args...), "add `format: jsonl`, `parquet`, `megatron` or `lengths`"}
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
				unpack,
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

// look returns the one format of the files that a pattern leads to. Files named .json count if there are no others.
func look(base, pattern string) (format string, why *Unclear) {
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
		dir, rest = full, "**"
	} else if exists(full + ".idx") {
		return megatronFormat, nil
	} else if rest == "" {
		return "", nil
	}
	looked, weak := 0, ""
	err := doublestar.GlobWalk(os.DirFS(dir), rest, func(name string, d fs.DirEntry) error {
		looked++
		found, ok := detect(name)
		switch {
		case looked > maxLooked:
			return errDone
		case d.IsDir() || !ok || hidden(name):
			return nil
		case kindOf(name).weak:
			weak = found
			return nil
		case format != "" && found != format:
			why = unclear("is not one: there are %s and %s files", format, found)
			return errDone
		}
		format = found
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		return "", nil // the same error comes up when the pattern is resolved
	}
	return cmp.Or(format, weak), why
}
