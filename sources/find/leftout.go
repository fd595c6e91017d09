package find

import (
	"path"
	"slices"
	"strings"

	"millrace/sources/format/registry"
)

// unfinished returns the endings of files that their writer has not finished.
func unfinished() []string {
	return []string{".part", ".partial", ".tmp", ".crdownload", ".incomplete", ".inprogress", ".filepart", ".aria2",
		"._copying_"}
}

// outputs returns the names that Hadoop, Spark and table formats give to files beside data. A tree of texts has other
// names that begin with an underscore.
func outputs() []string {
	return []string{"_temporary", "_success", "_delta_log", "_metadata", "_common_metadata", "_spark_metadata"}
}

// LeftOutName returns the reason why directories and wildcards pass over a file with this path below them, "" if they
// do not. The reader of text passes over fewer names.
func LeftOutName(name, format string) (why string) {
	parts := strings.Split(strings.Trim(name, "/"), "/")
	for i, part := range parts {
		if why = partLeftOut(part, i == len(parts)-1, format); why != "" {
			if i < len(parts)-1 {
				return "it lies in " + part + ", and " + why
			}
			return why
		}
	}
	return ""
}

// partLeftOut is LeftOutName for one part of a path. A key of Hive may begin with an underscore.
func partLeftOut(part string, last bool, format string) (why string) {
	lower := strings.ToLower(part)
	switch {
	case len(part) > 1 && part[0] == '.' && part != "..":
		return "its name begins with a dot"
	case format == registry.Text && slices.Contains(outputs(), lower),
		format != registry.Text && part[0:min(1, len(part))] == "_" && !strings.Contains(part, "="):
		return "its name begins with an underscore"
	case last && slices.ContainsFunc(unfinished(), func(end string) bool { return strings.HasSuffix(lower, end) }):
		return "its name is that of a file that is still written"
	}
	return ""
}

// passesOver returns the reason why a wildcard passes over a name that it matches, "" if it does not. A pattern names
// such a part literally if it has as many of them as the name.
func passesOver(name, pattern, format string) (why string) {
	if why = LeftOutName(name, format); why == "" {
		return ""
	}
	if leftOutParts(name, format) == leftOutParts(pattern, format) {
		return ""
	}
	return why + "; a pattern that writes this out reads it"
}

func leftOutParts(name, format string) (n int) {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if partLeftOut(part, i == len(parts)-1, format) != "" {
			n++
		}
	}
	return n
}

// isSilent reports whether a name that is left out surely has no data: those of Hadoop, checksums, and names
// that begin with a dot.
func isSilent(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.HasPrefix(part, ".") || slices.Contains(outputs(), strings.ToLower(part)) ||
			path.Ext(part) == ".crc"
	})
}

// skipName lists a file or a directory that is left out by its name.
func (f *sifter) skipName(path, name, why string) {
	f.skipped = append(f.skipped, Skipped{Path: path, Reason: why, Side: isSilent(name)})
}
