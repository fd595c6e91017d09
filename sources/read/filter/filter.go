// Package filter decides by an expression whether a record is kept: `quality > 0.5 && language == "en"`.
//
// The language is a part of github.com/expr-lang/expr: the part with the same answer on every host. It has no clock, no
// time zones, no order of a map's keys and no function without bounds. It has no powers, because their last bit may
// differ between processors. Names are the fields of the record, nested as meta.lang. `tokens` and `bytes` are the
// lengths of its document. Numbers with a point are 64-bit floats. Each operation on them is rounded by itself, as IEEE
// 754 demands, so the answer is the same on every host.
package filter

import (
	"fmt"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"millrace"
)

// Limits of an expression.
const (
	mostBytes  = 4096    // of its text
	mostNodes  = 512     // of its tree
	mostMemory = 1 << 16 // of the values that it makes for one record
	// MostOfASource is the most filters of one source: its own, and one for each stage with a filter.
	MostOfASource = 30
)

// Names with a value for every document of every format.
const (
	tokensName = "tokens"
	bytesName  = "bytes"
)

// functions returns the functions with the same answer on every host and in bounded time.
func functions() []string {
	return []string{"all", "none", "any", "one", "count", "len", "abs", "ceil", "floor", "round", "int", "float",
		"string", "trim", "trimPrefix", "trimSuffix", "upper", "lower", "split", "hasPrefix", "hasSuffix", "indexOf",
		"lastIndexOf", "min", "max"}
}

// Filter is one compiled expression. It is read-only and safe for concurrent use.
type Filter struct {
	text    string
	fields  []string
	program *vm.Program
}

// Compile compiles an expression. The text of its error is one line, and the error wraps millrace.ErrInvalid.
func Compile(text string) (*Filter, error) {
	fail := func(format string, args ...any) (*Filter, error) {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%s", fmt.Sprintf(format, args...))
	}
	if strings.TrimSpace(text) == "" {
		return fail("it is empty")
	}
	if len(text) > mostBytes {
		return fail("it has %d bytes, at most %d are read", len(text), mostBytes)
	}
	n := &names{}
	options := []expr.Option{expr.Env(map[string]any{}), expr.AllowUndefinedVariables(), expr.AsBool(),
		expr.MaxNodes(mostNodes), expr.DisableAllBuiltins(), expr.Patch(n)}
	for _, f := range functions() {
		options = append(options, expr.EnableBuiltin(f))
	}
	program, err := expr.Compile(text, options...)
	if err != nil {
		return fail("%s", firstLine(err))
	}
	if n.refused != "" {
		return fail("%s", n.refused)
	}
	f := &Filter{text: text, program: program}
	for _, name := range fieldsOf(program.Node()) {
		if name != tokensName && name != bytesName {
			f.fields = append(f.fields, name)
		}
	}
	return f, nil
}

// String returns the expression as it was written.
func (f *Filter) String() string { return f.text }

// Fields returns the fields of a record that the expression names, sorted. The lengths of the document are not among
// them.
func (f *Filter) Fields() []string { return f.fields }

// firstLine returns an error's text without the picture that the library draws below it.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// names makes one identifier of a.b.c and of $env["a b"]. It refuses the parts of the library's language that are left
// out here.
type names struct{ refused string }

// Visit implements ast.Visitor. Nodes below a node were visited before it.
func (n *names) Visit(node *ast.Node) {
	switch x := (*node).(type) {
	case *ast.BinaryNode:
		if x.Operator == "**" || x.Operator == "^" {
			n.refuse("powers are left out: the last bit of one may differ between processors")
		}
	case *ast.VariableDeclaratorNode:
		n.refuse("`let` is left out: write the value out")
	case *ast.CallNode:
		called := "of that name"
		if x, ok := x.Callee.(*ast.IdentifierNode); ok {
			called = x.Value
		}
		n.refuse("there is no function " + called + "; there are " + strings.Join(functions(), ", "))
	case *ast.MemberNode:
		of, isName := x.Node.(*ast.IdentifierNode)
		property, isText := x.Property.(*ast.StringNode)
		switch {
		case isName && isText && of.Value == "$env":
			ast.Patch(node, &ast.IdentifierNode{Value: property.Value})
		case isName && isText && !x.Method:
			ast.Patch(node, &ast.IdentifierNode{Value: of.Value + "." + property.Value})
		}
	}
}

func (n *names) refuse(why string) {
	if n.refused == "" {
		n.refused = why
	}
}

// collector lists identifiers.
type collector struct{ found []string }

// Visit implements ast.Visitor.
func (c *collector) Visit(node *ast.Node) {
	if x, ok := (*node).(*ast.IdentifierNode); ok {
		c.found = append(c.found, x.Value)
	}
}

func fieldsOf(root ast.Node) []string {
	c := &collector{}
	ast.Walk(&root, c)
	slices.Sort(c.found)
	return slices.Compact(c.found)
}
