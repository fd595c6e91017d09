package litdata

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace/sources"
	"millrace/sources/format/parts/fields"
)

// leaf is one value of an item.
type leaf struct {
	path   string // the keys and positions that lead to it, with dots between them
	format string // of its bytes
}

// node is a part of the tree of an item's values.
type node struct {
	Type     *string `json:"type"` // nil: a leaf
	Context  *string `json:"context"`
	Children []node  `json:"children_spec"`
}

// leavesOf returns the values of an item in the order in which they are stored.
func (x *index) leavesOf() ([]leaf, error) {
	root := node{}
	if x.DataSpec != nil {
		var spec [2]json.RawMessage
		if err := json.Unmarshal([]byte(*x.DataSpec), &spec); err != nil {
			return nil, fmt.Errorf("its data_spec is no JSON: %w", err)
		}
		if err := json.Unmarshal(spec[1], &root); err != nil {
			return nil, fmt.Errorf("its data_spec is no tree: %w", err)
		}
	}
	paths, err := root.paths(nil, "", 0)
	if err != nil {
		return nil, err
	}
	if len(paths) != len(x.DataFormat) {
		return nil, fmt.Errorf("its data_spec has %d values, and its data_format %d", len(paths), len(x.DataFormat))
	}
	leaves := make([]leaf, len(paths))
	for i, path := range paths {
		leaves[i] = leaf{path: path, format: x.DataFormat[i]}
	}
	if len(leaves) == 1 && leaves[0].path == "" {
		leaves[0].path = nameOf(leaves[0].format)
	}
	return leaves, nil
}

// nameOf returns the name of the only value of an item that is no dict, list or tuple.
func nameOf(format string) string {
	kind, _, _ := strings.Cut(format, ":")
	switch kind {
	case "str", "text":
		return "text"
	case "no_header_tensor", "no_header_numpy", "tensor", "numpy":
		return "tokens"
	}
	return "value"
}

// paths appends the paths of the leaves below a node.
func (n *node) paths(out []string, path string, depth int) ([]string, error) {
	if n.Type == nil {
		if len(out) == mostLeaves {
			return nil, fmt.Errorf("its data_spec has more than %d values", mostLeaves)
		}
		return append(out, path), nil
	}
	if depth == mostDepth {
		return nil, fmt.Errorf("its data_spec is nested deeper than %d", mostDepth)
	}
	keys, err := n.keys()
	if err != nil {
		return nil, err
	}
	for i := range n.Children {
		below := keys[i]
		if path != "" {
			below = path + "." + below
		}
		if out, err = n.Children[i].paths(out, below, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keys returns the names of a node's children: the keys of a dict, the fields of a named tuple, else their positions.
func (n *node) keys() (keys []string, err error) {
	var context any
	if n.Context != nil && json.Unmarshal([]byte(*n.Context), &context) != nil {
		return nil, fmt.Errorf("its data_spec has a %s whose keys are no JSON", *n.Type)
	}
	if m, ok := context.([]any); ok && *n.Type == "collections.defaultdict" && len(m) == 2 {
		context = m[1]
	}
	list, _ := context.([]any)
	for i := range n.Children {
		switch *n.Type {
		case "builtins.dict", "collections.OrderedDict", "collections.defaultdict":
			if i >= len(list) {
				return nil, errors.New("its data_spec has a dict with fewer keys than values")
			}
			keys = append(keys, fmt.Sprint(list[i]))
		default:
			keys = append(keys, strconv.Itoa(i))
		}
	}
	return keys, nil
}

// want is one value that a source needs: a leaf, or a path inside a leaf of nested values.
type want struct {
	path   string
	leaf   int // -1: items have no such value
	decode func(b []byte) (any, error)
	isText bool         // the bytes of the leaf are the text
	inside *fields.Path // nil: the leaf itself
}

// wants has the values that a source needs.
type wants struct {
	hasText bool
	text    want
	others  []want
}

// resolve finds the leaves of a source's fields. Items without a value for the text are an error.
func (x *index) resolve(f sources.File, field sources.Field) (*wants, error) {
	w := &wants{hasText: field.Text != ""}
	var err error
	if w.hasText {
		if w.text, err = x.find(f, field.Text); err != nil {
			return nil, err
		}
		switch {
		case w.text.leaf < 0:
			return nil, refused(f, "its items have no value %q; they have %s", field.Text, x.names())
		case !w.text.isText && w.text.inside == nil:
			return nil, refused(f, "value %q of its items is %s, not a text", field.Text, x.leaves[w.text.leaf].format)
		}
	}
	for _, path := range field.Others {
		other, err := x.find(f, path)
		if err != nil {
			return nil, err
		}
		w.others = append(w.others, other)
	}
	return w, nil
}

// find finds the leaf of a path: one of exactly this path, or one of nested values at the path's beginning.
func (x *index) find(f sources.File, path string) (w want, err error) {
	w = want{path: path, leaf: slices.IndexFunc(x.leaves, func(l leaf) bool { return l.path == path })}
	for i, l := range x.leaves {
		rest, ok := strings.CutPrefix(path, l.path+".")
		if w.leaf >= 0 || !ok || l.format != "json" {
			continue
		}
		inside, err := fields.Parse(rest)
		if err != nil {
			return w, err
		}
		w.leaf, w.inside = i, &inside
	}
	if w.leaf < 0 {
		return w, nil
	}
	format := x.leaves[w.leaf].format
	w.isText = format == "str" || format == "text"
	if w.decode, err = decoderOf(format); err != nil {
		return w, refused(f, "value %q of its items: %v", path, err)
	}
	return w, nil
}

// readable returns the paths of the values whose formats are read.
func (x *index) readable() (paths []string) {
	for _, l := range x.leaves {
		if _, err := decoderOf(l.format); err == nil {
			paths = append(paths, l.path)
		}
	}
	return paths
}

// names lists the values of an item with their formats, for people.
func (x *index) names() string {
	var out []string
	for _, l := range x.leaves[:min(len(x.leaves), 12)] {
		out = append(out, l.path+" ("+l.format+")")
	}
	if len(out) < len(x.leaves) {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}
