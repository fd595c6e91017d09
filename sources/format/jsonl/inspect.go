package jsonl

import (
	"bytes"
	"path"
	"strings"

	"millrace"
	"millrace/sources"
)

// refuseDocument returns an error for a file that is one JSON document, by its first uncompressed bytes. Otherwise each
// of its lines would be a bad record.
func refuseDocument(f sources.File, head []byte) error {
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(text) == 0 {
		return nil
	}
	what, query := "", ""
	rest := bytes.TrimLeft(text[1:], " \t\r")
	switch {
	case text[0] == '[' && len(rest) > 0 && (rest[0] == '{' || rest[0] == '\n'):
		what, query = "one JSON array", ".[]"
	case text[0] == '{' && len(rest) > 0 && rest[0] == '\n':
		what, query = "one JSON object over several lines", "."
	default:
		return nil
	}
	name := f.Name()
	return millrace.Errorf(millrace.ErrInvalid, "read %s: it is %s and not JSON lines, which have one object a line; "+
		"convert it, as with jq -c '%s' %s > %s.jsonl, or take it out of the path",
		name, what, query, path.Base(name), strings.TrimSuffix(path.Base(name), path.Ext(name)))
}
