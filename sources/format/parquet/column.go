package parquet

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go/format"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/values"
)

// column is one column of one file: the text, or a further column.
type column struct {
	path  []string
	names []string // of the file's top-level columns, for people
	kind  format.Type
	typ   values.Type
	size  int // bytes of a value of a fixed size in bytes
	leaf  int // position among the file's leaves, and so among the columns of each row group
	depth int // definition level of a value that is not null: the number of optional and repeated nodes in its path
	// repeats is the number of repeated nodes in its path: the largest repetition level
	repeats int
}

// levelBits is the width of a definition level.
func (c *column) levelBits() int { return bits.Len(uint(c.depth)) }

// width returns the bytes of a value of the column: 0 if each has its own, -1 if such values are not read.
func (c *column) width() int {
	switch c.kind {
	case format.ByteArray:
		return 0
	case format.Boolean:
		return 1 // once decoded
	case format.Int32, format.Float:
		return 4
	case format.Int64, format.Double:
		return 8
	case format.Int96:
		return 12
	case format.FixedLenByteArray:
		if c.size > 0 {
			return c.size
		}
	}
	return -1
}

// value returns a value as other packages see it.
func (c *column) value(v []byte) (any, error) {
	out, err := c.typ.Of(v)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrBadSample, "column %q: %v", strings.Join(c.path, "."), err)
	}
	return out, nil
}

// missing returns the error of a row whose value is null.
func (c *column) missing() *sources.MissingError {
	return sources.NewMissingError(strings.Join(c.path, "."), sources.Null, c.names)
}

// node is one element of the schema with its children.
type node struct {
	*format.SchemaElement
	children []*node
	keys     []string // names of the children
	typ      values.Type
	refused  string // name of a type that is not read
	leaf     int
	depth    int // largest definition level
	repeats  int // largest repetition level
}

// column returns a leaf as a column.
func (n *node) column(path, names []string) *column {
	return &column{path: path, names: names, kind: n.Type.V, typ: n.typ, size: int(n.TypeLength.V), leaf: n.leaf,
		depth: n.depth, repeats: n.repeats}
}

// findText returns the column of the text.
func findText(f sources.File, root *node, field string) (*column, error) {
	p, err := findPlace(f, root, field)
	switch {
	case err != nil:
		return nil, err
	case p.repeats > 0:
		return nil, wrongColumn(f, "column %q is a list, not one value a row", field)
	case len(p.children) > 0:
		return nil, wrongColumn(f, "column %q is no string but holds: %s", field, p.list(p.path))
	case !p.Type.Valid:
		return nil, wrongColumn(f, "column %q has no type", field)
	case p.typ.Kind == values.Null:
	case p.Type.V != format.ByteArray || p.refused != "" || !p.typ.IsText():
		return nil, wrongColumn(f, "column %q has type %s, want strings or binary", field, typeName(p.SchemaElement))
	}
	return p.node.column(p.path, p.names), nil
}

// place is the place of a field in the schema.
type place struct {
	*node
	path  []string
	above int      // definition level of the structs around it, if none is null
	names []string // of the file's top-level columns, for people
}

// leaves returns the columns at and below a place.
func (p *place) leaves(f sources.File) (out []*column, err error) {
	if refused := p.refusal(); refused != "" {
		return nil, wrongColumn(f, "column %q has type %s, which is not read; leave the column out, or write it as "+
			"another type", strings.Join(p.path, "."), refused)
	}
	err = p.walk(p.path, func(n *node, path []string) error {
		c := n.column(path, p.names)
		if !n.Type.Valid || c.width() < 0 {
			return wrongColumn(f, "column %q has type %v of %d bytes, which is not read", strings.Join(path, "."),
				c.kind, c.size)
		}
		out = append(out, c)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = wrongColumn(f, "column %q has nothing inside", strings.Join(p.path, "."))
	}
	return out, err
}

// walk passes the leaves at and below a node to act.
func (n *node) walk(path []string, act func(*node, []string) error) error {
	if len(n.children) == 0 {
		return act(n, slices.Clone(path))
	}
	for _, c := range n.children {
		if err := c.walk(append(path, c.Name), act); err != nil {
			return err
		}
	}
	return nil
}

// treeOf returns the tree of a file's schema.
func treeOf(f sources.File, meta *format.FileMetaData) (*node, error) {
	b := treeBuilder{rest: meta.Schema}
	root, err := b.node(0, 0, 0)
	if err != nil {
		return nil, damaged(f, "schema: %w", err)
	}
	if len(b.rest) > 0 {
		return nil, damaged(f, "schema: %d elements belong nowhere", len(b.rest))
	}
	root.mark(featuresOf(meta))
	return root, nil
}

// findPlace returns the place that a field names. A field that the file lacks is a *sources.LackError.
func findPlace(f sources.File, root *node, field string) (*place, error) {
	path, err := fields.Parse(field)
	if err != nil {
		return nil, err
	}
	at := &place{node: root}
	for i, part := range path.Parts {
		if rest := at.child(path.Rests[i]); rest != nil {
			part = path.Rests[i]
		}
		below := at.child(part)
		if below == nil {
			return nil, &sources.LackError{Field: field, Names: root.keys, Err: wrongColumn(f,
				"has no column %q; there are: %s", strings.Join(append(slices.Clone(at.path), part), "."),
				at.list(at.path))}
		}
		at.above, at.node, at.path = at.depth, below, append(at.path, part)
		if part == path.Rests[i] {
			break
		}
		if below.repeats > 0 {
			return nil, wrongColumn(f, "column %q is a list, not one value a row", strings.Join(at.path, "."))
		}
	}
	at.names = root.keys
	return at, nil
}

func wrongColumn(f sources.File, format string, args ...any) error {
	return millrace.Errorf(millrace.ErrInvalid, "%s %s", f.Name(), fmt.Sprintf(format, args...))
}

func (n *node) child(name string) *node {
	i := slices.IndexFunc(n.children, func(c *node) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return n.children[i]
}

// list returns the names of the children as a user writes them.
func (n *node) list(path []string) string {
	const most = 20
	var names []string
	for i, c := range n.children {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(n.children)-most))
			break
		}
		names = append(names, strings.Join(append(slices.Clone(path), c.Name), "."))
	}
	return strings.Join(names, ", ")
}

// treeBuilder builds a tree from the schema's elements, which come depth first.
type treeBuilder struct {
	rest   []format.SchemaElement
	leaves int
}

func (b *treeBuilder) node(depth, defined, repeats int) (*node, error) {
	if len(b.rest) == 0 {
		return nil, fmt.Errorf("it ends early")
	}
	if depth > mostThriftDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", mostThriftDepth)
	}
	n := &node{SchemaElement: &b.rest[0], depth: defined, repeats: repeats}
	b.rest = b.rest[1:]
	if depth > 0 && n.RepetitionType.V == format.Optional {
		n.depth++
	}
	if depth > 0 && n.RepetitionType.V == format.Repeated {
		n.depth++
		n.repeats++
	}
	children := n.NumChildren.V
	if children < 0 || int(children) > len(b.rest) {
		return nil, fmt.Errorf("%q has %d children", n.Name, children)
	}
	if children == 0 && (n.Type.Valid || depth > 0) {
		n.leaf = b.leaves
		if n.Type.Valid {
			b.leaves++
		}
		return n, nil
	}
	for range children {
		c, err := b.node(depth+1, n.depth, n.repeats)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, c)
	}
	return n, nil
}
