package growth

import (
	"fmt"
	"strings"

	"millrace"
)

// Cures returns the values of an override with which no document is read twice or never.
func (c *Change) Cures() (out []string) {
	if len(c.added) > 0 {
		out = append(out, "append")
	}
	if len(c.Gone()) > 0 {
		out = append(out, "mask")
	}
	return out
}

// Describe returns text for the user: the effect of a change on the documents of the pass that is under way.
func (c *Change) Describe(grown *millrace.Eras) string {
	return fmt.Sprintf("source %s: %s: %s", c.Now.Manifest.Source, c, c.Count(grown).Describe(grown != nil))
}

// Describe returns the numbers as text for the user. grown: they are those after Grow.
func (n Numbers) Describe(grown bool) string {
	if !n.Known && grown {
		return "no document is read twice or never"
	}
	if !n.Known {
		return "how many documents are read twice or never is not known, because not all files were counted: " +
			"run `millrace index MIXTURE --lengths`"
	}
	about := ""
	if n.Sampled {
		about = "about "
	}
	parts := []string{fmt.Sprintf("of the %s in files that stay, this pass reads %s%d twice and %s%d never",
		count(n.Kept), about, n.Twice, about, n.Never)}
	switch {
	case n.Added > 0 && n.Unread:
		parts = append(parts, fmt.Sprintf(
			"%s in new files: never read, because no pass follows (max_epochs, stop.epochs)", count(n.Added)))
	case n.Added > 0 && grown:
		parts = append(parts, fmt.Sprintf("%s in new files: from pass %d on", count(n.Added), n.Later))
	case n.Added > 0:
		parts = append(parts, fmt.Sprintf("of the %s in new files, this pass reads %s%d never", count(n.Added), about,
			n.Skipped))
	}
	if n.Gone > 0 {
		parts = append(parts, fmt.Sprintf("of the %s in missing files, %s%d were not read and are not", count(n.Gone),
			about, n.GoneLeft))
	}
	return strings.Join(parts, "; ")
}

func count(n uint64) string {
	if n == 1 {
		return "1 document"
	}
	return fmt.Sprintf("%d documents", n)
}
