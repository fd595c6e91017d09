package jinja_test

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"millrace"
	"millrace/sources/values"
	"millrace/text/chat/jinja"
)

// mostRendered bounds the text of a rendering: a template makes text by its steps, and their number is bounded.
const mostRendered = 100 << 20

// FuzzRender parses and renders templates with a conversation. A template that takes too many steps is an error.
func FuzzRender(f *testing.F) {
	raw, err := os.ReadFile("testdata/templates.json")
	if err != nil {
		f.Fatal(err)
	}
	var file struct {
		Templates map[string]string
		Chats     []struct{ Messages json.RawMessage }
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		f.Fatal(err)
	}
	for _, source := range file.Templates {
		f.Add(source, []byte(file.Chats[0].Messages))
	}
	for _, source := range []string{"{{ messages|tojson(indent=4) }}",
		"{% for x in range(9) %}{{ x ** 3 }}{% endfor %}",
		"{% macro m(a, b=1) %}{{ a }}{% endmacro %}{{ m(2) }}", "{{ 'a'[::-1] ~ none }}{% set ns = namespace(n=1) %}",
		"{{- messages[-1]['content'].split(' ')|join(',')|upper -}}",
		"{{ strftime_now('%Y') }}{{ raise_exception('no') }}",
		"{% generation %}{% if x is defined and not y %}{% elif 1 < 2 <= 3 %}{% else %}{% endif %}" +
			"{% endgeneration %}"} {
		f.Add(source, []byte(`[{"role": "user", "content": "hi {{ x }}"}, `+
			`{"role": "assistant", "content": [1, null]}]`))
	}
	f.Fuzz(func(t *testing.T, source string, chat []byte) {
		template, err := jinja.Parse(source)
		if err != nil {
			if !errors.Is(err, millrace.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		messages, err := values.FromJSON(chat)
		if err != nil {
			messages = string(chat)
		}
		_, isList := messages.([]any)
		got, err := template.Render([]jinja.Value{{Name: "messages", Value: messages, Origin: 2, Count: isList},
			{Name: "bos_token", Value: "<s>"}, {Name: "add_generation_prompt", Value: false}, {Name: "tools"}})
		if err != nil && !errors.Is(err, millrace.ErrBadSample) || len(got.Runes) != len(got.Origin) ||
			len(got.Runes) > mostRendered {
			t.Fatalf("%d characters with %d origins: %v", len(got.Runes), len(got.Origin), err)
		}
	})
}
