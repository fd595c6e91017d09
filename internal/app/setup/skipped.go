package setup

import (
	"fmt"

	"millrace/internal/app/config"
	"millrace/sources/find"
)

// SkippedFiles returns a warning for each source whose directories or wildcards match files that are not read and may
// hold records. It ignores paths that cannot be resolved: the loaders report them, or wait for them.
func SkippedFiles(c *config.Config) (warnings []string) {
	for i := range c.Sources {
		s := &c.Sources[i]
		spec, err := SourceSpec(c, s, nil, nil)
		if err != nil {
			continue
		}
		found, err := find.Resolve(spec.Base, spec.Patterns, spec.Root, spec.Format.Name())
		if err != nil {
			continue
		}
		count, first := 0, find.Skipped{}
		for _, f := range found.Skipped {
			if f.Side {
				continue
			}
			if count++; count == 1 {
				first = f
			}
		}
		if count > 0 {
			warnings = append(warnings, fmt.Sprintf("source %s: files of its path that are not read: %d; "+
				"the first is %s: %s; millrace check lists them", s.Name, count, first.Path, first.Reason))
		}
	}
	return warnings
}
