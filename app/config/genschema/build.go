package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/invopop/jsonschema"

	"millrace"
	"millrace/app/config"
	"millrace/app/config/decode"
	"millrace/app/config/value"
)

// configDir is the folder of package config. go generate and go test run in the folder of this file.
const configDir = ".."

// self is the import path of this folder. Joined with configDir, it is the package that has the comments.
const self = "millrace/app/config/genschema"

// Patterns of values that are written as a text or as a number.
const (
	sizePattern    = `^[0-9]+(\.[0-9]+)? *([KMGT]i?B|kB|B)?$`
	formulaPattern = `^ *([0-9]{1,9} *\* *)?(tokens|patches)(\^2)?( *\+ *([0-9]{1,9} *\* *)?(tokens|patches)(\^2)?)* *$`
	streamPattern  = `^[A-Za-z0-9_-]{1,32}$`
	namePattern    = "^[^\\x00-\\x1f\\x7f`\"'\\\\#,=\\[\\]{}]+$"
)

// build reflects the schema from config.Config.
func build(dir string) (*jsonschema.Schema, error) {
	r := &jsonschema.Reflector{
		Anonymous:                  true,
		DoNotReference:             true,
		FieldNameTag:               "yaml",
		RequiredFromJSONSchemaTags: true,
	}
	if err := r.AddGoComments(self, dir); err != nil {
		return nil, fmt.Errorf("read comments: %w", err)
	}
	comments := r.CommentMap
	r.CommentMap = nil
	r.LookupComment = func(t reflect.Type, field string) string { return describe(comments, t, field) }
	r.Mapper = func(t reflect.Type) *jsonschema.Schema { return mapped(r, t) }
	s := r.Reflect(&config.Config{})
	s.Version = jsonschema.Version
	s.Title = "Millrace mixture file"
	complete(s, reflect.TypeFor[config.Config]())
	group := r.ReflectFromType(reflect.TypeFor[config.Group]())
	group.Version = ""
	complete(group, reflect.TypeFor[config.Group]())
	group.OneOf = oneOf("weights", "groups")
	s.Definitions = jsonschema.Definitions{"group": group, "stream": stream(s)} // groups hold groups
	tighten(s)
	return s, nil
}

// stream returns the schema of a further stream: the keys of the file that a stream may have, none of them required.
func stream(file *jsonschema.Schema) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema,
		Description: "The keys of one stream. A key that it lacks is the run's.",
	}
	for p := file.Properties.Oldest(); p != nil; p = p.Next() {
		switch {
		case slices.Contains(config.RunKeys(), p.Key):
		case p.Key == config.StreamKey:
			s.Properties.Set(p.Key, p.Value)
		default:
			s.Properties.Set(p.Key, &jsonschema.Schema{Ref: "#/properties/" + p.Key})
		}
	}
	file.Properties.Delete(config.StreamKey)
	return s
}

// describe turns a Go comment into a description: one line, without the Go name.
func describe(comments map[string]string, t reflect.Type, field string) string {
	key, name := t.PkgPath()+"."+t.Name(), t.Name()
	if field != "" {
		key, name = key+"."+field, field
	}
	text := oneLine(comments[key])
	if rest, ok := cutVerb(text, name); ok {
		first := []rune(rest)
		first[0] = unicode.ToUpper(first[0])
		return string(first)
	}
	if field == "" {
		return text
	}
	f, _ := t.FieldByName(field)
	if rest, ok := strings.CutPrefix(text, field+" "); ok && !strings.EqualFold(field, f.Tag.Get("yaml")) {
		return f.Tag.Get("yaml") + " " + rest
	}
	return text
}

func cutVerb(text, name string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, name+" is "); ok {
		return rest, true
	}
	return strings.CutPrefix(text, name+" are ")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// mapped returns the schema of a type that has another form in the file, or nil.
func mapped(r *jsonschema.Reflector, t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[value.Decimal]():
		return decimal()
	case reflect.TypeFor[config.StageFilters]():
		return &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Type: "string", MinLength: ptr(1)},
		}
	case reflect.TypeFor[value.Ratio]():
		return &jsonschema.Schema{Type: "number", Minimum: "0"}
	case reflect.TypeFor[value.Bytes]():
		return &jsonschema.Schema{
			OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "0"}, {Type: "string", Pattern: sizePattern}},
		}
	case reflect.TypeFor[value.Formula]():
		return &jsonschema.Schema{Type: "string", Pattern: formulaPattern}
	case reflect.TypeFor[value.Above]():
		return &jsonschema.Schema{
			OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "2147483647"}, {Const: "mean"}},
		}
	case reflect.TypeFor[value.Loaders]():
		return &jsonschema.Schema{
			OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "256"}, {Const: "auto"},
				{Type: "string", Pattern: "^[1-9][0-9]{0,2}-[1-9][0-9]{0,2}$"}},
		}
	case reflect.TypeFor[value.Carry]():
		return &jsonschema.Schema{
			OneOf: []*jsonschema.Schema{{Type: "integer", Minimum: "0",
				Maximum: json.Number(strconv.Itoa(millrace.MostCarried))}, {Const: "auto"}},
		}
	case reflect.TypeFor[config.Patterns]():
		one := &jsonschema.Schema{Type: "string", MinLength: ptr(1)}
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{one, {Type: "array", Items: one, MinItems: ptr(1)}}}
	case reflect.TypeFor[config.Weights]():
		given := &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Type: "number", Minimum: "0"},
			MinProperties:        ptr(1),
		}
		rule := r.ReflectFromType(reflect.TypeFor[config.Derived]())
		rule.Version = ""
		complete(rule, reflect.TypeFor[config.Derived]())
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{given, rule}}
	case reflect.TypeFor[config.Specials]():
		id := &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: "2097150"}
		return &jsonschema.Schema{Type: "object", AdditionalProperties: id, MinProperties: ptr(1)}
	case reflect.TypeFor[config.Roles]():
		role := &jsonschema.Schema{Type: "string", MinLength: ptr(1)}
		return &jsonschema.Schema{Type: "object", AdditionalProperties: role, MinProperties: ptr(1)}
	case reflect.TypeFor[config.Template]():
		return templateSchema(r)
	case reflect.TypeFor[config.Variables]():
		return &jsonschema.Schema{Type: "object", MinProperties: ptr(1)}
	case reflect.TypeFor[config.Groups]():
		return &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Ref: "#/$defs/group"},
			MinProperties:        ptr(1),
		}
	case reflect.TypeFor[config.Streams]():
		return &jsonschema.Schema{
			Type:                 "object",
			AdditionalProperties: &jsonschema.Schema{Ref: "#/$defs/stream"},
			PropertyNames:        &jsonschema.Schema{Pattern: streamPattern},
		}
	case reflect.TypeFor[config.Sources]():
		source := r.ReflectFromType(reflect.TypeFor[config.Source]())
		source.Version = ""
		complete(source, reflect.TypeFor[config.Source]())
		return &jsonschema.Schema{
			Type: "object", AdditionalProperties: source, MinProperties: ptr(1),
			PropertyNames: &jsonschema.Schema{Pattern: namePattern},
		}
	}
	return nil
}

// templateSchema is a word or a mapping.
func templateSchema(r *jsonschema.Reflector) *jsonschema.Schema {
	keys := r.ReflectFromType(reflect.TypeFor[config.TemplateKeys]())
	keys.Version = ""
	complete(keys, reflect.TypeFor[config.TemplateKeys]())
	keys.MinProperties = ptr(1)
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Enum: []any{"tokenizer", "chatml"}}, keys}}
}

func decimal() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "number", Minimum: "0", ExclusiveMaximum: "1000000000"}
}

func ptr(n uint64) *uint64 { return &n }

// complete adds the parts that the reflector leaves out: the minimum 0 of numbers, the words of enumerated types, and
// defaults of mapped types.
func complete(s *jsonschema.Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		p := property(s, f.Tag.Get("yaml"))
		if p == nil {
			continue
		}
		if p.Type == "integer" && p.Minimum == "" {
			p.Minimum = "0"
		}
		if e, ok := reflect.Zero(f.Type).Interface().(decode.Enumerated); ok {
			for _, word := range e.Words() {
				p.Enum = append(p.Enum, word)
			}
			if a, ok := e.(decode.Aliased); ok {
				for _, word := range slices.Sorted(maps.Keys(a.Aliases())) {
					p.Enum = append(p.Enum, word)
				}
			}
		}
		if _, rest, ok := strings.Cut(f.Tag.Get("jsonschema"), "default="); ok && p.Default == nil {
			p.Default, _, _ = strings.Cut(rest, ",")
		}
		sub, inner := p, f.Type
		switch inner.Kind() {
		case reflect.Pointer:
			inner = inner.Elem()
		case reflect.Slice:
			sub, inner = p.Items, inner.Elem()
		}
		if inner.Kind() == reflect.Struct && sub != nil && sub.Properties != nil {
			complete(sub, inner)
		}
	}
}

// tighten adds the conditions between keys that the Go types cannot express.
func tighten(s *jsonschema.Schema) {
	exclude(s, "model", "cost")
	property(s, "tokenizer").OneOf = oneOf("name", "path")
	property(s, "stop").MinProperties, property(s, "stop").MaxProperties = ptr(1), ptr(1)
	mixture := property(s, "mixture")
	mixture.OneOf = oneOf("weights", "groups", "schedule")
	schedule := property(mixture, "schedule")
	schedule.MinItems = ptr(1)
	schedule.Items.OneOf = oneOf("from_step", "from_tokens")
	schedule.Items.AnyOf = oneOf("weights", "groups")
	exclude(schedule.Items, "from_step", "over_tokens")
	exclude(schedule.Items, "from_tokens", "over_steps")
}

func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	p, _ := s.Properties.Get(key)
	return p // nil if there is none
}

// exclude refuses two keys beside each other.
func exclude(s *jsonschema.Schema, a, b string) {
	s.AllOf = append(s.AllOf, &jsonschema.Schema{Not: &jsonschema.Schema{Required: []string{a, b}}})
}

func oneOf(keys ...string) []*jsonschema.Schema {
	var list []*jsonschema.Schema
	for _, k := range keys {
		list = append(list, &jsonschema.Schema{Required: []string{k}})
	}
	return list
}
