package setup

import (
	"fmt"
	"iter"
	"strings"

	"millrace/app/config"
	"millrace/sources"
	"millrace/sources/find"
)

// mostNamed is the number of files that a warning names.
const mostNamed = 3

// SkippedFiles returns a text for each source: a warning if its directories or wildcards match files that are not read
// and may hold records, otherwise nothing. It ignores paths that cannot be resolved: the loaders report them, or wait
// for them.
func SkippedFiles(c *config.Config) iter.Seq[string] {
	return func(yield func(warning string) bool) {
		for i := range c.Sources {
			if !yield(skippedOf(c, &c.Sources[i])) {
				return
			}
		}
	}
}

func skippedOf(c *config.Config, s *config.Source) (warning string) {
	if s.IsRemote() { // a second listing of a bucket takes too long; check lists the files
		return ""
	}
	spec, err := SourceSpec(c, s, nil, nil)
	if err != nil {
		return ""
	}
	found, err := find.Resolve(nil, spec.Query(sources.OSFS()))
	if err != nil {
		return ""
	}
	count, shown := 0, []string{}
	for _, f := range found.Skipped {
		if f.Side {
			continue
		}
		if count++; count <= mostNamed {
			shown = append(shown, f.Path+": "+f.Reason)
		}
	}
	if count == 0 {
		return ""
	}
	return fmt.Sprintf("source %s: files of its path that are not read: %d; the first: %s; `millrace check` lists them",
		s.Name, count, strings.Join(shown, "; "))
}
