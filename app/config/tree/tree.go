package tree

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Kind is the kind of a node of the file.
type Kind uint8

// The kinds of nodes.
const (
	Scalar Kind = iota
	Mapping
	Sequence
)

// Class is the YAML type of a scalar.
type Class uint8

// The classes of scalars.
const (
	Plain  Class = iota // text
	Quoted              // text in quotes
	Number
	Boolean
	Null
)

// Node is a value of the file and its place. It is all that the decoder sees of YAML.
type Node struct {
	Kind    Kind
	Class   Class
	Text    string // of a scalar: its value if text, else as written
	Line    int
	Column  int
	Width   int
	Entries []Entry // of a mapping, in the order of the file
	Items   []*Node // of a sequence
}

// Entry is a key of a mapping and its value.
type Entry struct {
	Key   *Node
	Value *Node
}

// The limits of a mixture file. They bound the time and the stack of the parser.
const (
	MaxFile   = 1 << 20 // bytes
	maxTokens = 400_000 // of YAML
	maxNested = 24      // mappings and sequences inside each other
)

// readTree parses one YAML document into a tree. Errors have positions; the YAML library's panics become errors.
func readTree(src text, content string) (root *Node, errs Errors) {
	defer func() {
		if p := recover(); p != nil { // the one fence around the YAML library
			root, errs = nil, Errors{
				src.Fail(1, 1, 1, "this is not YAML that can be read", "compare the file with the examples"),
			}
		}
	}()
	if e := checkLines(src); e != nil {
		return nil, Errors{e}
	}
	tokens := lexer.Tokenize(content)
	if e := checkTokens(src, tokens); e != nil {
		return nil, Errors{e}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, Errors{syntaxError(src, err)}
	}
	b := builder{src: src}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			root = b.build(doc.Body, position{line: 1, column: 1}, 0)
			break
		}
	}
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	if root == nil {
		return nil, Errors{
			src.Fail(1, 1, 1, "the file is empty", "start with `version: 1`; see examples/quickstart.yaml"),
		}
	}
	return root, nil
}

// position is a line and a column, both from 1.
type position struct{ line, column int }

// syntaxCures are the cures for messages of the parser.
var syntaxCures = []struct{ said, cure string }{
	{"tab character", "indent with spaces, not with tabs"},
	{"found a tab", "indent with spaces, not with tabs"},
	{"could not find end character", "close the quotation mark"},
	{
		"mapping value is not allowed",
		"a value that contains `: ` needs quotes; a nested key goes on its own line, further in",
	},
	{"',' or ']'", "close the list with `]`, or put a comma between its values"},
	{"',' or '}'", "close the mapping with `}`, or put a comma between its keys"},
	{"flow map", "close the mapping with `}`"},
	{"sequence end token", "close the list with `]`"},
	{"reserved character", "put the value in quotes"},
	{"block sequence entries", "begin the list on a line of its own"},
	{"not allowed in this context", "check the indentation: keys of one mapping begin in one column"},
	{"non-map value", "check the indentation, and that every key is followed by `: `"},
	{"unexpected key name", "a key is followed by `: ` on its own line"},
}

// syntaxError turns the parser's error into one of ours.
func syntaxError(src text, err error) *Error {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return src.Fail(1, 1, 1, "this is not YAML that can be read", "compare the file with the examples")
	}
	line, column := y.GetToken().Position.Line, y.GetToken().Position.Column
	if e := indentError(src, line, y.GetMessage()); e != nil {
		return e
	}
	msg, cure := y.GetMessage(), "check the indentation, quotes and brackets here and just before"
	for _, c := range syntaxCures {
		if strings.Contains(msg, c.said) {
			cure = c.cure
			break
		}
	}
	return src.Fail(line, column, 1, "cannot be read: "+msg, cure)
}

// indentError explains the two mistakes of indentation that the parser reports as something else: a tab, and a line
// further in than its neighbours, which the parser takes for the rest of the value before it.
func indentError(src text, line int, said string) *Error {
	for n := line; n <= line+1 && n >= 1 && n <= len(src.lines); n++ {
		l := src.lines[n-1]
		if i := strings.IndexByte(l[:indent(l)], '\t'); i >= 0 {
			return src.Fail(n, i+1, 1, "cannot be read: a tab in the indentation", "indent with spaces")
		}
	}
	if line < 1 || line >= len(src.lines) || !strings.Contains(said, "mapping value is not allowed") {
		return nil
	}
	here, next := src.lines[line-1], src.lines[line]
	if strings.Count(here, ": ") == 1 && strings.Contains(next, ":") && indent(next) > indent(here) {
		return src.Fail(
			line+1, indent(next)+1, 1,
			"cannot be read: this line is indented further than the key before it, which has a value already",
			"begin it in the column of the key before",
		)
	}
	return nil
}

// indent returns the bytes of white space that a line begins with.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// builder turns the library's tree into ours and finds doubled keys.
type builder struct {
	src  text
	errs Errors
}

func (b *builder) fail(at *Node, msg, cure string) {
	b.errs = append(b.errs, b.src.Fail(at.Line, at.Column, at.Width, msg, cure))
}

// build converts a value. A node without a place of its own (a value left out) gets at.
func (b *builder) build(n ast.Node, at position, depth int) *Node {
	out := placed(n, at)
	if depth > maxNested {
		b.fail(out, "nested too deeply", fmt.Sprintf("a mixture file needs no more than %d levels", maxNested))
		return out
	}
	switch x := n.(type) {
	case *ast.MappingNode:
		b.buildMapping(out, x.Values, depth)
	case *ast.MappingValueNode:
		b.buildMapping(out, []*ast.MappingValueNode{x}, depth)
	case *ast.SequenceNode:
		out.Kind = Sequence
		for _, v := range x.Values {
			out.Items = append(out.Items, b.build(v, position{out.Line, out.Column}, depth+1))
		}
	default:
		b.buildScalar(out, n)
	}
	return out
}

func (b *builder) buildMapping(out *Node, values []*ast.MappingValueNode, depth int) {
	out.Kind = Mapping
	seen := make(map[string]*Node, len(values))
	for i, v := range values {
		key := placed(v.Key, position{out.Line, out.Column})
		b.buildScalar(key, v.Key)
		if i == 0 && out.Text != "{" {
			out.Line, out.Column, out.Width = key.Line, key.Column, key.Width
		}
		if first, ok := seen[key.Text]; ok {
			b.fail(
				key, "doubled key "+Quote(key.Text),
				fmt.Sprintf("it is already on line %d; keep one of them", first.Line),
			)
		}
		seen[key.Text] = key
		value := b.build(v.Value, position{key.Line, key.Column + key.Width}, depth+1)
		out.Entries = append(out.Entries, Entry{Key: key, Value: value})
	}
	out.Text = ""
}

func (b *builder) buildScalar(out *Node, n ast.Node) {
	out.Class = Plain
	switch x := n.(type) {
	case *ast.StringNode:
		out.Text = x.Value
		if t := x.Token.Type; t == token.SingleQuoteType || t == token.DoubleQuoteType {
			out.Class = Quoted
			out.Width = max(utf8.RuneCountInString(strings.TrimSpace(x.Token.Origin)), 1)
		}
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.Class = Number
	case *ast.BoolNode:
		out.Class = Boolean
	case *ast.NullNode:
		out.Class = Null
	default:
		b.fail(out, "this kind of YAML value is not allowed", "write a plain value, a list or a mapping")
	}
}

// placed returns a node with the library's place and literal text.
func placed(n ast.Node, at position) *Node {
	out := &Node{Line: at.line, Column: at.column, Width: 1}
	if n == nil {
		return out
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		out.Line, out.Column, out.Text = t.Position.Line, t.Position.Column, t.Value
		out.Width = max(utf8.RuneCountInString(t.Value), 1)
	}
	return out
}
