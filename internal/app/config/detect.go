package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"millrace/internal/app/config/tree"
)

// formatOf returns the format that a file's name tells, "" where it tells none.
func formatOf(file string) Format {
	file = strings.ToLower(file)
	for _, compressed := range []string{".gz", ".zst", ".bgz"} {
		if bare, ok := strings.CutSuffix(file, compressed); ok {
			if e := path.Ext(bare); e == ".jsonl" || e == ".ndjson" {
				return JSONL
			}
			return ""
		}
	}
	switch path.Ext(file) {
	case ".jsonl", ".ndjson":
		return JSONL
	case ".parquet":
		return Parquet
	case ".bin", ".idx":
		return Megatron
	}
	return ""
}

// patternFormat returns the format that every alternative of a pattern tells, "" where one tells none or they differ.
func patternFormat(pattern string) (format Format) {
	open := strings.IndexByte(pattern, '{')
	end := strings.IndexByte(pattern, '}')
	if open < 0 || end < open || strings.ContainsAny(pattern[open+1:end], "{\\") {
		return formatOf(strings.TrimSuffix(pattern, "*"))
	}
	if strings.Count(pattern, "{") > maxBraces {
		return ""
	}
	for i, alternative := range strings.Split(pattern[open+1:end], ",") {
		found := patternFormat(pattern[:open] + alternative + pattern[end+1:])
		if found == "" || i > 0 && found != format {
			return ""
		}
		format = found
	}
	return format
}

// maxBraces is how many brace lists of one pattern are looked into.
const maxBraces = 4

// maxLooked is how many directory entries detection looks at before it asks for `format:`.
const maxLooked = 10_000

// errDone ends a walk.
var errDone = errors.New("seen enough")

// detect returns the format that patterns tell, by their own text or, for directories, prefixes and open globs, by what is there.
// The reason is empty unless there is none, or more than one.
func (c *Config) detect(patterns Patterns) (format Format, why string) {
	for _, p := range patterns {
		found := patternFormat(p)
		if found == "" {
			found, why = c.look(p)
		}
		switch {
		case why != "":
			return "", why
		case found == "":
			return "", "cannot be told from " + tree.Quote(p)
		case format == "":
			format = found
		case format != found:
			return "", fmt.Sprintf("is not one: %s and %s", format, found)
		}
	}
	return format, ""
}

// look returns the one format of the files that a pattern leads to.
func (c *Config) look(pattern string) (format Format, why string) {
	if c.Base == "" || isURL(pattern) {
		return "", ""
	}
	dir, rest := doublestar.SplitPattern(filepath.ToSlash(c.Abs(pattern)))
	full := path.Join(dir, rest)
	if st, err := os.Stat(full); err == nil && st.IsDir() {
		dir, rest = full, "**"
	} else if _, err := os.Stat(full + ".idx"); err == nil {
		return Megatron, ""
	}
	looked := 0
	err := doublestar.GlobWalk(os.DirFS(dir), rest, func(name string, d fs.DirEntry) error {
		looked++
		found := formatOf(name)
		switch {
		case looked > maxLooked:
			return errDone
		case d.IsDir() || found == "":
			return nil
		case format != "" && found != format:
			why = fmt.Sprintf("is not one: there are %s and %s files", format, found)
			return errDone
		}
		format = found
		return nil
	})
	if err != nil && !errors.Is(err, errDone) {
		return "", ""
	}
	return format, why
}
