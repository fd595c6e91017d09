// Package filter decides by an expression whether a record is kept: `quality > 0.5 && language == "en"`.
//
// The language is that of github.com/expr-lang/expr, cut down to what gives one answer everywhere: no clock, no time
// zones, no powers (their last bit may differ between processors), no order of a map's keys, nothing that grows
// without bound. Names are the fields of the record, nested as meta.lang; `tokens` and `bytes` are the lengths of the
// document that it becomes. Numbers with a point are compared as 64-bit floats: each operation is rounded by itself
// as IEEE 754 says, so that the one bit that leaves this package is the same on every host.
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

// What an expression may be.
const (
	mostBytes  = 4096    // of its text
	mostNodes  = 512     // of its tree
	mostMemory = 1 << 16 // of what it makes for one record, in the values of the machine
	// MostOfASource is how many filters may look at one source: its own, and one for each stage that has one.
	MostOfASource = 31
)

// Own names: what is known of every document, whatever its format.
const (
	tokensName = "tokens"
	bytesName  = "bytes"
)

// functions are those that give one answer everywhere, in bounded time.
func functions() []string {
	return []string{"all", "none", "any", "one", "count", "len", "abs", "ceil", "floor", "round", "int", "float", "string", "trim", "trimPrefix", "trimSuffix",
		"upper", "lower", "split", "hasPrefix", "hasSuffix", "indexOf", "lastIndexOf", "min", "max"}
}

// Filter is one compiled expression. It is read-only and safe for concurrent use.
type Filter struct {
	text    string
	fields  []string
	program *vm.Program
}

// Compile reads an expression. Its error says what is wrong on one line, and wraps millrace.ErrInvalid.
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
	options := []expr.Option{expr.Env(map[string]any{}), expr.AllowUndefinedVariables(), expr.AsBool(), expr.MaxNodes(mostNodes), expr.DisableAllBuiltins(), expr.Patch(n)}
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

// Fields returns the fields of a record that the expression names, sorted; the record's own lengths are not among them.
func (f *Filter) Fields() []string { return f.fields }

// firstLine cuts off the picture that the library draws below its messages.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// names makes one identifier of a.b.c and $env["a b"], and refuses what is not in the language here.
type names struct{ refused string }

// Visit implements ast.Visitor; what is below a node was visited before it.
func (n *names) Visit(node *ast.Node) {
	switch x := (*node).(type) {
	case *ast.BinaryNode:
		if x.Operator == "**" || x.Operator == "^" {
			n.refuse("powers are not there: the last bit of one may differ between processors")
		}
	case *ast.VariableDeclaratorNode:
		n.refuse("`let` is not there: write the value out")
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
