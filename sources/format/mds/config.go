package mds

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/extents"
	"millrace/sources/format/parts/fields"
)

// config is the description of a shard that lies in it, behind the table of its samples.
type config struct {
	Version   int      `json:"version"`
	Format    string   `json:"format"`
	Names     []string `json:"column_names"`
	Encodings []string `json:"column_encodings"`
	Sizes     []*int64 `json:"column_sizes"` // nil: each sample has its own

	isObject bool // of a shard of lines: each sample is a JSON object
}

// Bounds of a description.
const (
	mostConfig  = 16 << 20 // bytes
	mostColumns = 1 << 16
)

// columnsCure is for a shard with too many columns.
const columnsCure = "write the set again with the columns that are wanted"

// tooLong is the error of a description that takes too many bytes.
func tooLong(f sources.File, size int64) error {
	return extents.Misfit(f, "%w", sources.Limited(columnsCure,
		"the description of its columns takes %d bytes, more than %d", size, mostConfig))
}

// readConfig reads the description of a shard.
func readConfig(f sources.File, text []byte) (*config, error) {
	c := &config{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, extents.Misfit(f, "the description of its columns is no JSON: %v", err)
	}
	switch {
	case c.Version != 2:
		return nil, extents.Misfit(f, "its version is %d, want 2", c.Version)
	case c.Format != "mds":
		return nil, extents.Misfit(f, "its description is of format %q, want mds", c.Format)
	case len(c.Names) > mostColumns && len(c.Encodings) == len(c.Names) && len(c.Sizes) == len(c.Names):
		return nil, extents.Misfit(f, "%w", sources.Limited(columnsCure,
			"it has %d names of columns, at most %d are read", len(c.Names), mostColumns))
	case len(c.Encodings) != len(c.Names) || len(c.Sizes) != len(c.Names):
		return nil, extents.Misfit(f, "it has %d names, %d encodings and %d sizes of columns", len(c.Names),
			len(c.Encodings), len(c.Sizes))
	}
	for i, size := range c.Sizes {
		if size != nil && (*size < 0 || *size > math.MaxInt32) {
			return nil, extents.Misfit(f, "column %q has %d bytes", c.Names[i], *size)
		}
	}
	return c, nil
}

// want is one value that a source needs: a column, or a path inside a column of JSON.
type want struct {
	path   string
	column int // -1: the shard has no such column
	encoding
	inside *fields.Path // nil: the column itself
}

// wants has the values that a source needs.
type wants struct {
	hasText bool
	text    want
	others  []want
}

// resolve finds the columns of a source's fields. A shard without the text's column is an error.
func (c *config) resolve(f sources.File, field sources.Field) (*wants, error) {
	w := &wants{hasText: field.Text != ""}
	var err error
	if w.hasText {
		if w.text, err = c.find(f, field.Text); err != nil {
			return nil, err
		}
		if w.text.column < 0 {
			return nil, millrace.Errorf(millrace.ErrInvalid,
				"open %s: it has no column %q; it has %s", f.Name(), field.Text, c.columns())
		}
		if w.text.kind == number {
			return nil, millrace.Errorf(millrace.ErrInvalid, "open %s: column %q holds %s, not a text", f.Name(),
				field.Text, c.Encodings[w.text.column])
		}
	}
	for _, path := range field.Others {
		other, err := c.find(f, path)
		if err != nil {
			return nil, err
		}
		w.others = append(w.others, other)
	}
	return w, nil
}

// find finds the column of a path: a column of exactly this name, or the column of JSON with the path's beginning.
func (c *config) find(f sources.File, path string) (want, error) {
	if c.isObject {
		return c.inObject(path)
	}
	w := want{path: path, column: slices.Index(c.Names, path)}
	if w.column < 0 {
		head, rest, ok := strings.Cut(path, ".")
		i := slices.Index(c.Names, head)
		if !ok || i < 0 || c.Encodings[i] != "json" {
			return w, nil
		}
		inside, err := fields.Parse(rest)
		if err != nil {
			return w, err
		}
		w.column, w.inside = i, &inside
	}
	var err error
	w.encoding, err = parseEncoding(c.Encodings[w.column])
	if err != nil {
		return w, millrace.Errorf(millrace.ErrInvalid, "open %s: column %q: %w", f.Name(), c.Names[w.column], err)
	}
	return w, nil
}

// inObject returns the want of a path in the samples of a shard of JSON objects.
func (c *config) inObject(path string) (want, error) {
	head, _, _ := strings.Cut(path, ".")
	w := want{path: path, column: -1, encoding: encoding{kind: object}}
	if !slices.Contains(c.Names, path) && !slices.Contains(c.Names, head) {
		return w, nil
	}
	inside, err := fields.Parse(path)
	if err != nil {
		return w, err
	}
	w.column, w.inside = 0, &inside
	return w, nil
}

// readable returns the names of the columns whose encodings are read.
func (c *config) readable(f sources.File) (names []string) {
	for _, name := range c.Names {
		if _, err := c.find(f, name); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// columns lists the columns with their encodings, for people.
func (c *config) columns() string {
	var out []string
	for i, name := range c.Names[:min(len(c.Names), 12)] {
		out = append(out, name+" ("+c.Encodings[i]+")")
	}
	if len(out) < len(c.Names) {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}
