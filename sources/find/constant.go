package find

import (
	"fmt"
	"net/url"
	"strings"
)

// Constant is a field with one value in all records of a file, by the place of the file.
type Constant struct {
	Name  string
	Value any // one of package values; nil: null
}

// hiveNull is the name that Hive and Spark give to the folder of a null.
const hiveNull = "__HIVE_DEFAULT_PARTITION__"

// constantsIn returns the constants of a file by its folders `key=value`, as Hive and Spark name them. folders is the
// name of the file up to its last slash. Of folders with the same key, the innermost counts.
func constantsIn(folders string) (out []Constant) {
	for folder := range strings.SplitSeq(folders, "/") {
		key, value, ok := strings.Cut(folder, "=")
		if !ok || key == "" {
			continue
		}
		c := Constant{Name: unescaped(key), Value: unescaped(value)}
		if value == hiveNull {
			c.Value = nil
		}
		out = put(out, c)
	}
	return out
}

// put adds a constant, in the place of one with its name.
func put(all []Constant, c Constant) []Constant {
	for i := range all {
		if all[i].Name == c.Name {
			all[i] = c
			return all
		}
	}
	return append(all, c)
}

// unescaped returns a key or a value without the escapes of Hive, %XX. A text with other percent signs is no such one.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return strings.ToValidUTF8(plain, "\ufffd")
	}
	return text
}

// setConstants sets the constants of files in order. Files of one folder share them.
func setConstants(files []File) {
	last, of := "", []Constant(nil)
	inTables := map[string][]Constant{}
	for i := range files {
		f := &files[i]
		if f.inside != "" {
			f.Constants = f.inTable(inTables)
			continue
		}
		slash := strings.LastIndexByte(f.Name, '/')
		folders := f.Name[:max(slash, 0)]
		if folders != last {
			last, of = folders, constantsIn(folders)
		}
		f.Constants = of
	}
}

// inTable returns the constants of a file of a table: those of the log, and those of the folders above the table.
// Folders inside it mean nothing. seen has those of other files.
func (f *File) inTable(seen map[string][]Constant) []Constant {
	above, isWhole := strings.CutSuffix(f.Name, f.inside)
	if !isWhole { // the root is inside the table
		above = ""
	}
	id := fmt.Sprintf("%q %q", above, f.Constants)
	if _, ok := seen[id]; !ok {
		all := constantsIn(above)
		for _, c := range f.Constants {
			all = put(all, c)
		}
		seen[id] = all
	}
	return seen[id]
}
