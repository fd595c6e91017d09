package fields

import (
	"slices"
	"strings"

	"millrace"
	"millrace/sources/values"
)

// Path is a dotted path to a value inside a record.
type Path struct {
	name  string
	Parts []string // at each depth, the part of the path
	Rests []string // at each depth, the rest of the path as it is written, with its dots
}

// Parse reads a path. A path with an empty part is an error that wraps millrace.ErrInvalid.
func Parse(name string) (Path, error) {
	p := Path{name: name, Parts: strings.Split(name, ".")}
	if slices.Contains(p.Parts, "") {
		return Path{}, millrace.Errorf(millrace.ErrInvalid,
			"read field %q: a part of the path is empty; write names with single dots between them, as meta.body", name)
	}
	for i := range p.Parts {
		p.Rests = append(p.Rests, strings.Join(p.Parts[i:], "."))
	}
	return p, nil
}

// String returns the path as it was written.
func (p Path) String() string { return p.name }

// Of returns the value at the path, and whether the record has it. The value may be nil.
func (p Path) Of(record values.Object) (value any, ok bool) {
	for i, part := range p.Parts {
		if v, ok := record.Get(p.Rests[i]); ok {
			return v, true
		}
		v, ok := record.Get(part)
		if !ok {
			return nil, false
		}
		if record, ok = v.(values.Object); !ok {
			return nil, false
		}
	}
	return nil, false
}

// Names returns the names of a record's fields, at the depth of the path's first part that the record does not have.
func (p Path) Names(record values.Object) []string {
	above := ""
	for _, part := range p.Parts {
		v, _ := record.Get(part)
		inside, ok := v.(values.Object)
		if !ok {
			break
		}
		record, above = inside, above+part+"."
	}
	names := slices.Clone(record.Keys)
	for i := range names {
		names[i] = above + names[i]
	}
	return names
}
