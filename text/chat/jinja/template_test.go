package jinja_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"millrace/sources/values"
	"millrace/text/chat/jinja"
)

// ordered decodes JSON with the order of its keys.
func ordered(t *testing.T, b []byte) any {
	t.Helper()
	v, err := values.FromJSON(b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAsTransformers compares texts and generated spans with those of transformers.
func TestAsTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/templates.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Templates map[string]string
		Chats     []struct{ Messages, Tools json.RawMessage }
		Special   map[string]string
		Cases     []struct {
			Template string
			Chat     int
			Text     string
			Spans    [][2]int
			Error    string
		}
	}
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&file); err != nil {
		t.Fatal(err)
	}
	parsed := map[string]*jinja.Template{}
	for name, source := range file.Templates {
		if parsed[name], err = jinja.Parse(source); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, c := range file.Cases {
		values := []jinja.Value{
			{Name: "messages", Value: ordered(t, file.Chats[c.Chat].Messages), Origin: 2, Count: true},
			{Name: "tools", Value: ordered(t, file.Chats[c.Chat].Tools)},
			{Name: "documents"}, {Name: "add_generation_prompt", Value: false},
		}
		for name, text := range file.Special {
			values = append(values, jinja.Value{Name: name, Value: text})
		}
		got, err := parsed[c.Template].Render(values)
		if (err != nil) != (c.Error != "") {
			t.Errorf("%s, chat %d: got %v, want %q", c.Template, c.Chat, err, c.Error)
			continue
		}
		if string(got.Runes) != c.Text {
			t.Errorf("%s, chat %d: got\n%q, want\n%q", c.Template, c.Chat, string(got.Runes), c.Text)
		}
		var want []jinja.Span
		for _, s := range c.Spans {
			if n := len(want) - 1; n >= 0 && want[n].To == s[0] {
				want[n].To = s[1]
			} else if s[0] < s[1] {
				want = append(want, jinja.Span{From: s[0], To: s[1]})
			}
		}
		if c.Template != "blocks" && !slices.Equal(got.Generated, want) { // transformers counts inside macros wrongly
			t.Errorf("%s, chat %d: generated %v, want %v", c.Template, c.Chat, got.Generated, want)
		}
	}
}
