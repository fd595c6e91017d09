// Package decode fills Go values from the tree of a YAML file by the rules in their struct tags. It continues after a
// mistake, to report all mistakes.
package decode

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"millrace/app/config/tree"
)

// Decoder fills Go values from a document.
type Decoder struct {
	*tree.Document
	Hints Hints
	Errs  tree.Errors
	bad   []string // paths of mistakes
}

// Rules are the conditions in the jsonschema tag of a value. The zero Rules have none.
type Rules struct {
	required bool
	initial  string // the default, as it would be written
	enum     []string
	aliases  map[string]string // words of enum by other words for them
	min      uint64
	Max      uint64 // 0: none
	notYet   string // the purpose of a value above Max, which a later version may accept
}

// Enumerated is a type of text with few values. The list of a struct tag would be too long.
type Enumerated interface {
	Words() []string
}

// Aliased is an Enumerated type whose values have other words, too. The value is that of the word in Words.
type Aliased interface {
	Aliases() map[string]string
}

func rulesOf(f reflect.StructField) Rules {
	r := Rules{notYet: f.Tag.Get("notyet")}
	if e, ok := reflect.Zero(f.Type).Interface().(Enumerated); ok {
		r.enum = e.Words()
	}
	if a, ok := reflect.Zero(f.Type).Interface().(Aliased); ok {
		r.aliases = a.Aliases()
	}
	for part := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "required":
			r.required = true
		case "default":
			r.initial = value
		case "enum":
			r.enum = append(r.enum, value)
		case "minimum":
			r.min, _ = strconv.ParseUint(value, 10, 64)
		case "maximum":
			r.Max, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	return r
}

// DefaultOf returns the default of a field, as it would be written; empty if it has none.
func DefaultOf(f reflect.StructField) string { return rulesOf(f).initial }

// Structure is a type that reads its own part of the tree, such as a mapping from names.
type Structure interface {
	DecodeNode(d *Decoder, path string, n *tree.Node)
}

// Literal is a type that is written as one plain value. SetText returns an empty problem if the text is correct.
type Literal interface {
	SetText(text string, c tree.Class) (problem, cure string)
}

// Fail reports a mistake at a node.
func (d *Decoder) Fail(path string, at *tree.Node, msg, cure string) {
	d.bad = append(d.bad, path)
	d.Errs = append(d.Errs, d.Document.Fail(at.Line, at.Column, at.Width, msg, cure))
}

// Sound reports whether no mistake was found at, around or below the paths.
func (d *Decoder) Sound(paths ...string) bool {
	for _, b := range d.bad {
		for _, p := range paths {
			if Within(b, p) || Within(p, b) {
				return false
			}
		}
	}
	return true
}

// Within reports whether a path is another one or is below it. The whole file is "".
func Within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (of == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Decode sets v from n. A nil n sets the default.
func (d *Decoder) Decode(path string, n *tree.Node, v reflect.Value, r Rules) {
	if n == nil && v.Kind() == reflect.Pointer {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if n != nil && n.Class == tree.Null && n.Kind == tree.Scalar {
		d.Fail(path, n, Name(path)+" has no value", "write a value, or leave the key out")
		return
	}
	switch x := v.Addr().Interface().(type) {
	case Structure:
		if n != nil {
			x.DecodeNode(d, path, n)
		}
		return
	case Literal:
		d.Literal(path, n, x, r)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.decodeStruct(path, n, v)
	case reflect.Slice:
		d.decodeList(path, n, v)
	default:
		d.decodeScalar(path, n, v, r)
	}
}

// decodeStruct reads the keys of one mapping and refuses unknown keys.
func (d *Decoder) decodeStruct(path string, n *tree.Node, v reflect.Value) {
	if n != nil && n.Kind != tree.Mapping {
		d.WrongType(path, n, "a mapping", d.MappingCure(path))
		return
	}
	values := map[string]*tree.Node{}
	if n != nil {
		for _, e := range n.Entries {
			values[e.Key.Text] = e.Value
			d.Places[Join(path, e.Key.Text)] = e
			if _, ok := FieldOf(v.Type(), e.Key.Text); !ok {
				d.unknownKey(path, e.Key, v.Type())
			}
		}
	}
	for i := range v.NumField() {
		key := keyName(v.Type().Field(i))
		if key == "" {
			continue
		}
		r := rulesOf(v.Type().Field(i))
		value := values[key]
		if value == nil && r.required && n != nil {
			at, _ := d.Place(Join(path, key))
			d.Fail(Join(path, key), at, Missing(path, key), d.RequiredCure(key))
			continue
		}
		d.Decode(Join(path, key), value, v.Field(i), r)
	}
}

func (d *Decoder) decodeList(path string, n *tree.Node, v reflect.Value) {
	if n == nil {
		return
	}
	if n.Kind != tree.Sequence {
		d.WrongType(path, n, "a list", "begin each entry with `- `")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i, item := range n.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.Places[at] = tree.Entry{Key: item, Value: item}
		d.Decode(at, item, v.Index(i), Rules{})
	}
}

// Literal sets x from n. A nil n sets the default.
func (d *Decoder) Literal(path string, n *tree.Node, x Literal, r Rules) {
	if n == nil {
		if r.initial != "" {
			x.SetText(r.initial, tree.Plain)
		}
		return
	}
	if n.Kind != tree.Scalar {
		d.WrongType(path, n, "one value", "write "+d.example(path, r))
		return
	}
	if problem, cure := x.SetText(n.Text, n.Class); problem != "" {
		d.Fail(path, n, Name(path)+" "+problem, cure)
	}
}

// decodeScalar reads a text, a whole number or a boolean.
func (d *Decoder) decodeScalar(path string, n *tree.Node, v reflect.Value, r Rules) {
	given, c := r.initial, tree.Plain
	if n != nil {
		given, c = n.Text, n.Class
		if n.Kind != tree.Scalar {
			d.WrongType(path, n, "one value", "write "+d.example(path, r))
			return
		}
	} else if given == "" {
		return
	}
	var problem, cure string
	switch v.Kind() {
	case reflect.String:
		if n == nil {
			c = tree.Quoted
		}
		problem, cure = d.setString(v, given, c, r, path)
	case reflect.Bool:
		problem, cure = setBool(v, given, c)
	default:
		problem, cure = setInteger(v, given, c, r)
	}
	if problem != "" {
		d.Fail(path, n, Name(path)+" "+problem, cure)
	}
}

// WrongType reports a node of another kind than wanted.
func (d *Decoder) WrongType(path string, n *tree.Node, want, cure string) {
	got := map[tree.Kind]string{tree.Scalar: "one value", tree.Mapping: "a mapping", tree.Sequence: "a list"}[n.Kind]
	if path == "" {
		d.Fail(path, n, "the file must be a mapping, not "+got, "start with `version: 1`; see examples/quickstart.yaml")
		return
	}
	d.Fail(path, n, Name(path)+" must be "+want+", not "+got, cure)
}

// keyName returns a field's key in the file, or nothing for a field without a key.
func keyName(f reflect.StructField) string {
	if k := f.Tag.Get("yaml"); k != "-" {
		return k
	}
	return ""
}

// FieldOf returns the field of a struct type that holds a key.
func FieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); key != "" && keyName(f) == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// Join adds a key to a path.
func Join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// Name returns a path as messages write it.
func Name(path string) string { return tree.Quote(path) }
