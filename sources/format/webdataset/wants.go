package webdataset

import (
	"strings"

	"millrace/sources"
	"millrace/sources/format/parts/fields"
)

// want is one value that a source needs.
type want struct {
	path string
	ways []way // the first of which a group has the member counts
}

// way is one reading of a path: the member with this suffix, and a path inside its JSON.
type way struct {
	suffix string
	inside *fields.Path // nil: the member itself
}

// wants has the values that a source needs.
type wants struct {
	hasText bool
	text    want
	others  []want
}

func newWants(field sources.Field) (*wants, error) {
	w := &wants{hasText: field.Text != ""}
	var err error
	if w.hasText {
		if w.text, err = newWant(field.Text); err != nil {
			return nil, err
		}
		if field.Text == "text" {
			inside, err := fields.Parse("text")
			if err != nil {
				return nil, err
			}
			w.text.ways = append(w.text.ways, way{suffix: "txt"}, way{suffix: "json", inside: &inside})
		}
	}
	for _, path := range field.Others {
		other, err := newWant(path)
		if err != nil {
			return nil, err
		}
		w.others = append(w.others, other)
	}
	return w, nil
}

// newWant returns the ways to read a path: all of it is a suffix, or ever shorter beginnings are.
func newWant(path string) (want, error) {
	w := want{path: path, ways: []way{{suffix: path}}}
	if _, err := fields.Parse(path); err != nil {
		return w, err
	}
	for dot := strings.LastIndexByte(path, '.'); dot > 0; dot = strings.LastIndexByte(path[:dot], '.') {
		inside, err := fields.Parse(path[dot+1:])
		if err != nil {
			return w, err
		}
		w.ways = append(w.ways, way{suffix: path[:dot], inside: &inside})
	}
	return w, nil
}

// keyField is the path of a group's key.
const keyField = "__key__"
