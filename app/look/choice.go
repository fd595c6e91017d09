package look

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// choice is the way in which a source's documents are made, by its first file.
type choice struct {
	keys    []string          // of the source, as `text: body`
	fields  map[string]string // the fields that these keys name, by key
	used    []string          // the fields that the documents are made of
	notes   []string          // for people
	refusal string            // the reason why the source would not be trained on as its records mean it; empty: none
}

// take lets a key name a field.
func (c *choice) take(key string, x *Field) {
	c.used = append(c.used, x.Name)
	if key == "" {
		return
	}
	if c.fields == nil {
		c.fields = map[string]string{}
	}
	c.fields[key] = x.Name
	c.keys = append(c.keys, key+": "+plain(x.Name))
}

func (c *choice) has(key string) bool {
	return slices.ContainsFunc(c.keys, func(k string) bool { return strings.HasPrefix(k, key+": ") })
}

func (c *choice) say(note string) { c.notes = append(c.notes, note) }

// isOptional reports whether a record may lack a field that the source names.
func (c *choice) isOptional(name string) bool {
	return c.fields["tools"] == name || !slices.Contains(slicesOf(c.fields), name) && name != "input"
}

func slicesOf(m map[string]string) (values []string) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}

// choose chooses the fields of a document.
func (d *File) choose() choice {
	if d.Tokens != nil || len(d.Fields) == 0 {
		return choice{}
	}
	for _, s := range shapes() {
		if c, ok := s.choice(d); ok {
			return c
		}
	}
	c := d.text()
	checkMedia(d, &c)
	return c
}

// fieldNames lists the fields.
func (d *File) fieldNames() string {
	var names []string
	for _, x := range d.Fields {
		names = append(names, x.Name)
	}
	return strings.Join(names, ", ")
}

// field returns a field by its name, nil if there is none.
func (d *File) field(name string) *Field {
	i := slices.IndexFunc(d.Fields, func(x Field) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Fields[i]
}

// most reports whether n is more than half of the records that were looked at.
func (d *File) most(n int) bool { return 2*n > d.Looked }

// tokenizersTemplate is the key for messages that the tokenizer's chat template renders.
const tokenizersTemplate = "template: tokenizer"

// text chooses the field of the text: a usual name, else the field with the most text.
func (d *File) text() (c choice) {
	x := d.find(part{names: usualTexts(), is: isText})
	if x == nil {
		for i := range d.Fields {
			if y := &d.Fields[i]; isText(d, y) && (x == nil || y.bytes > x.bytes) {
				x = y
			}
		}
		if x == nil {
			return choice{keys: []string{"text: text"},
				refusal: "no field holds a text in most records; write the field of the text: " + d.fieldNames()}
		}
		c.say("the field with the most text; check that it is the right one")
	}
	c.used = []string{x.Name}
	if x.Name != "text" {
		c.keys = append(c.keys, "text: "+plain(x.Name))
	}
	if gaps := d.Looked - len(d.Bad) - x.texts; gaps > 0 {
		c.keys = append(c.keys, "missing: skip")
		c.say(fmt.Sprintf("%d of the first %d records have no %s", gaps, d.Looked, x.Name))
	}
	return c
}

// plain returns a name as YAML has it.
func plain(name string) string {
	for _, r := range name {
		if !(r == '_' || r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return strconv.Quote(name)
		}
	}
	if _, err := strconv.ParseFloat(name, 64); err == nil {
		return strconv.Quote(name)
	}
	return name
}
