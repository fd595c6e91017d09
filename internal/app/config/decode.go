package config

import (
	"fmt"
	"millrace/internal/app/config/tree"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decoder fills Go values from the tree by the rules that the types' tags hold. It goes on after a mistake, to report all.
type decoder struct {
	*tree.Document
	errs tree.Errors
	bad  []string // paths with a mistake
}

// rules are what a jsonschema tag says of a value.
type rules struct {
	required bool
	initial  string // the default, as it would be written
	enum     []string
	min, max uint64 // max 0: none
	notYet   string // what a value above max is for, once it is there
}

func rulesOf(f reflect.StructField) rules {
	r := rules{notYet: f.Tag.Get("notyet")}
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
			r.max, _ = strconv.ParseUint(value, 10, 64)
		}
	}
	return r
}

// structure is a type that is a mapping of its own kind in the file, such as one from names.
type structure interface {
	decodeNode(d *decoder, path string, n *tree.Node)
}

// literal is a type that is written as one plain value. The problem says what is wrong with the text, empty if nothing.
type literal interface {
	setText(text string, c tree.Class) (problem, cure string)
}

// fail reports a mistake at a node.
func (d *decoder) fail(path string, at *tree.Node, msg, cure string) {
	d.bad = append(d.bad, path)
	d.errs = append(d.errs, d.Document.Fail(at.Line, at.Column, at.Width, msg, cure))
}

// sound tells whether nothing at, around or below the paths was wrong so far, so that a check of several is worth making.
func (d *decoder) sound(paths ...string) bool {
	for _, b := range d.bad {
		for _, p := range paths {
			if within(b, p) || within(p, b) {
				return false
			}
		}
	}
	return true
}

// within tells whether a path is another or lies below it; everything lies below the whole file, "".
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (of == "" || rest == "" || rest[0] == '.' || rest[0] == '[')
}

// decode sets v from n; a nil n stands for a value left out and sets the default.
func (d *decoder) decode(path string, n *tree.Node, v reflect.Value, r rules) {
	if n == nil && v.Kind() == reflect.Pointer {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if n != nil && n.Class == tree.Null && n.Kind == tree.Scalar {
		d.fail(path, n, name(path)+" has no value", "write a value, or leave the key out")
		return
	}
	switch x := v.Addr().Interface().(type) {
	case structure:
		if n != nil {
			x.decodeNode(d, path, n)
		}
		return
	case literal:
		d.decodeLiteral(path, n, x, r)
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

// decodeStruct reads the keys of one mapping and refuses those that the type does not know.
func (d *decoder) decodeStruct(path string, n *tree.Node, v reflect.Value) {
	if n != nil && n.Kind != tree.Mapping {
		d.wrongType(path, n, "a mapping", mappingCure(path))
		return
	}
	values := map[string]*tree.Node{}
	if n != nil {
		for _, e := range n.Entries {
			values[e.Key.Text] = e.Value
			d.Places[join(path, e.Key.Text)] = e
			if _, ok := fieldOf(v.Type(), e.Key.Text); !ok {
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
			at, _ := d.Place(join(path, key))
			d.fail(join(path, key), at, missing(path, key), requiredCure(path, key))
			continue
		}
		d.decode(join(path, key), value, v.Field(i), r)
	}
}

func (d *decoder) decodeList(path string, n *tree.Node, v reflect.Value) {
	if n == nil {
		return
	}
	if n.Kind != tree.Sequence {
		d.wrongType(path, n, "a list", "begin each entry with `- `")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
	for i, item := range n.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.Places[at] = tree.Entry{Key: item, Value: item}
		d.decode(at, item, v.Index(i), rules{})
	}
}

func (d *decoder) decodeLiteral(path string, n *tree.Node, x literal, r rules) {
	if n == nil {
		if r.initial != "" {
			x.setText(r.initial, tree.Plain)
		}
		return
	}
	if n.Kind != tree.Scalar {
		d.wrongType(path, n, "one value", "write "+example(path, r))
		return
	}
	if problem, cure := x.setText(n.Text, n.Class); problem != "" {
		d.fail(path, n, name(path)+" "+problem, cure)
	}
}

// decodeScalar reads a text, a whole number or a boolean.
func (d *decoder) decodeScalar(path string, n *tree.Node, v reflect.Value, r rules) {
	given, c := r.initial, tree.Plain
	if n != nil {
		given, c = n.Text, n.Class
		if n.Kind != tree.Scalar {
			d.wrongType(path, n, "one value", "write "+example(path, r))
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
		problem, cure = setString(v, given, c, r, path)
	case reflect.Bool:
		problem, cure = setBool(v, given, c)
	default:
		problem, cure = setInteger(v, given, c, r)
	}
	if problem != "" {
		d.fail(path, n, name(path)+" "+problem, cure)
	}
}

func setString(v reflect.Value, given string, c tree.Class, r rules, path string) (problem, cure string) {
	if len(r.enum) > 0 {
		if !slices.Contains(r.enum, given) {
			return unknownValue(path, given, r.enum)
		}
		v.SetString(given)
		return "", ""
	}
	switch {
	case c == tree.Number || c == tree.Boolean:
		return "must be a text, not " + tree.Quote(given), `put it in quotes: "` + given + `"`
	case given == "":
		return "is empty", "write a value, or leave the key out"
	}
	v.SetString(given)
	return "", ""
}

func setBool(v reflect.Value, given string, c tree.Class) (problem, cure string) {
	switch {
	case c != tree.Quoted && given == "true", c != tree.Quoted && given == "false":
		v.SetBool(given == "true")
		return "", ""
	case strings.EqualFold(given, "true"), strings.EqualFold(given, "yes"), strings.EqualFold(given, "on"), given == "1":
		return "must be true or false, not " + tree.Quote(given), "write true"
	case strings.EqualFold(given, "false"), strings.EqualFold(given, "no"), strings.EqualFold(given, "off"), given == "0":
		return "must be true or false, not " + tree.Quote(given), "write false"
	}
	return "must be true or false, not " + tree.Quote(given), "write true or false"
}

func setInteger(v reflect.Value, given string, c tree.Class, r rules) (problem, cure string) {
	bounds := boundsText(v, r)
	if c == tree.Quoted && allDigits(given) && given != "" {
		return "must be a number, not a text in quotes", "write " + given
	}
	if !allDigits(given) || given == "" || c == tree.Quoted {
		if strings.HasPrefix(given, "-") {
			return "must not be negative: " + tree.Quote(given), bounds
		}
		return "must be a whole number, not " + tree.Quote(given), wholeCure(given, bounds)
	}
	if len(given) > 1 && given[0] == '0' {
		return "has a leading zero: " + tree.Quote(given), "write " + strings.TrimLeft(given[:len(given)-1], "0") + given[len(given)-1:]
	}
	n, err := strconv.ParseUint(given, 10, 64)
	switch {
	case r.notYet != "" && (err != nil || n > r.max):
		return fmt.Sprintf("cannot be above %d yet", r.max), fmt.Sprintf("not yet: %s; write %d", r.notYet, r.max)
	case err != nil, r.max > 0 && n > r.max:
		return "is too large: " + tree.Quote(given), bounds
	case n < r.min:
		return "is too small: " + tree.Quote(given), bounds
	}
	if v.CanInt() {
		v.SetInt(int64(n))
	} else {
		v.SetUint(n)
	}
	return "", ""
}

// wholeCure writes out what was meant by 1e6, 1_000 or 4.0, where that is a whole number.
func wholeCure(given, bounds string) string {
	plain := strings.ReplaceAll(strings.ReplaceAll(given, "_", ""), ",", "")
	if d := (Decimal{Text: plain}); plain != "" {
		if n, problem := parseDecimal(plain); problem == "" && n%pow9 == 0 {
			return "write " + d.String()
		}
	}
	return bounds
}

func boundsText(v reflect.Value, r rules) string {
	most := r.max
	if most == 0 && v.CanUint() {
		most = ^uint64(0) >> (64 - v.Type().Bits())
	}
	if r.min == most {
		return fmt.Sprintf("write %d", r.min)
	}
	return fmt.Sprintf("write a whole number from %d to %d, in decimal digits", r.min, most)
}

func (d *decoder) wrongType(path string, n *tree.Node, want, cure string) {
	got := map[tree.Kind]string{tree.Scalar: "one value", tree.Mapping: "a mapping", tree.Sequence: "a list"}[n.Kind]
	if path == "" {
		d.fail(path, n, "the file must be a mapping, not "+got, "start with `version: 1`; see examples/quickstart.yaml")
		return
	}
	d.fail(path, n, name(path)+" must be "+want+", not "+got, cure)
}

// keyName returns a field's key in the file, "" for one that is not in it.
func keyName(f reflect.StructField) string {
	if k := f.Tag.Get("yaml"); k != "-" {
		return k
	}
	return ""
}

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); key != "" && keyName(f) == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// name is how messages call a path.
func name(path string) string { return tree.Quote(path) }
