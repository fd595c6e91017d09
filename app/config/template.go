package config

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"millrace/app/config/decode"
	"millrace/app/config/tree"
	"millrace/text/chat"
)

// Template names a chat template: a word, or the keys of TemplateKeys.
type Template struct {
	Word string // tokenizer or chatml
	TemplateKeys
	Choice chat.Choice // the templates' texts; validation reads them
}

// TemplateKeys choose a chat template among several, and set its variables.
type TemplateKeys struct {
	// Path is a Jinja file, or the directory of a model. Left out: the directory of the tokenizer.
	Path string `yaml:"path"`
	// Name of one of the model's templates. Left out: default, or the only one; and tool_use for conversations with
	// tools, if the model has a template of that name.
	Name string `yaml:"name"`
	// Variables of the template, as {enable_thinking: false}. The variable date is the day that strftime_now gives.
	Variables Variables `yaml:"variables"`
}

// isGiven reports whether the source has the key.
func (t *Template) isGiven() bool { return t.Word != "" || t.TemplateKeys != TemplateKeys{} }

// IsRendered reports whether a template renders the source's documents. Pairs without a template are texts.
func (s *Source) IsRendered() bool { return s.Messages != "" || s.Template.isGiven() }

// DecodeNode reads a word, or a mapping.
func (t *Template) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	cure := "write `tokenizer`, `chatml`, `{path: template.jinja}`, or `{name: tool_use}`"
	switch {
	case n.Kind == tree.Scalar && (n.Text == "tokenizer" || n.Text == "chatml"):
		t.Word = n.Text
	case n.Kind == tree.Mapping && len(n.Entries) > 0:
		d.Decode(path, n, reflect.ValueOf(&t.TemplateKeys).Elem(), decode.Rules{})
	default:
		d.WrongType(path, n, "a chat template", cure)
	}
}

// Variables are values by names, as the JSON text of an object.
type Variables string

// DecodeNode reads values of any kind by names.
func (x *Variables) DecodeNode(d *decode.Decoder, path string, n *tree.Node) {
	if n.Kind != tree.Mapping || len(n.Entries) == 0 {
		d.WrongType(path, n, "a mapping from names to values", "write it as `{enable_thinking: false}`")
		return
	}
	for _, e := range n.Entries {
		at := decode.Join(path, e.Key.Text)
		d.Places[at] = e
		if slices.Contains([]string{"messages", "tools", "documents", "add_generation_prompt"}, e.Key.Text) {
			d.Fail(at, e.Key, decode.Name(at)+" has the name of a value that the conversation gives",
				"leave it out; `messages` and `tools` of the source name the fields")
		}
	}
	text, ok := jsonOf(d, path, n)
	if ok {
		*x = Variables(text)
	}
}

// jsonOf returns the JSON text of a value of the file.
func jsonOf(d *decode.Decoder, path string, n *tree.Node) (text string, ok bool) {
	var parts []string
	ok = true
	add := func(key, at string, n *tree.Node) {
		part, fits := jsonOf(d, at, n)
		parts, ok = append(parts, key+part), ok && fits
	}
	switch {
	case n.Kind == tree.Mapping:
		for _, e := range n.Entries {
			add(quoted(e.Key.Text)+": ", decode.Join(path, e.Key.Text), e.Value)
		}
		return "{" + strings.Join(parts, ", ") + "}", ok
	case n.Kind == tree.Sequence:
		for i, item := range n.Items {
			add("", fmt.Sprintf("%s[%d]", path, i), item)
		}
		return "[" + strings.Join(parts, ", ") + "]", ok
	case n.Class == tree.Null:
		return "null", true
	case n.Class == tree.Boolean:
		return strings.ToLower(n.Text), true
	case n.Class == tree.Number:
		if !json.Valid([]byte(n.Text)) {
			d.Fail(path, n, decode.Name(path)+" is a number that JSON does not have: "+tree.Quote(n.Text),
				"write it in decimal digits, or in quotes if it is a text")
			return "", false
		}
		return n.Text, true
	}
	return quoted(n.Text), true
}

// quoted returns a text as JSON.
func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		return `""` // a text is never refused
	}
	return string(b)
}

// checkTemplate reads the chat template of a source.
func (v *validator) checkTemplate(path string, s *Source) {
	if !v.Sound(path + ".template") {
		return
	}
	var err error
	t := &s.Template
	model := t.Path
	if model == "" && v.c.Tokenizer != nil {
		model = v.c.Tokenizer.Path
	}
	switch info, missing := os.Stat(v.c.Abs(model)); {
	case t.Word == "chatml":
		t.Choice.Plain = chat.ChatML
	case model == "":
		v.wrongKey(path, "no chat template is known for this tokenizer", "add `template: chatml` or "+
			"`template: {path: FILE}`")
		return
	case t.Path == "" || missing == nil && info.IsDir():
		t.Choice, err = chat.ReadModelTemplate(v.c.Abs(model), t.Name)
	case t.Name != "":
		v.wrongKey(path, "`template.name` chooses among the templates of a model, and "+tree.Quote(t.Path)+
			" is one file", "leave `name` out, or write the model's directory as `path`")
	default:
		t.Choice.Plain, err = chat.ReadTemplate(v.c.Abs(t.Path))
	}
	if err != nil {
		v.wrongKey(path, "the chat template cannot be read: "+err.Error(), "mend it, or name another `template`")
	}
	if s.Tools == "" { // no conversation has tools
		t.Choice.WithTools = ""
	}
}
