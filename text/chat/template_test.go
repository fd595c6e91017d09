package chat_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/text/chat"
)

// TestTemplatesOfAModel: the template that transformers 5.24 takes, for every way in which a model may name its
// templates. The texts are what `tokenizer.get_chat_template(None, tools)` gives without and with tools.
func TestTemplatesOfAModel(t *testing.T) {
	const (
		file, dir = "chat_template.jinja", "additional_chat_templates/"
		config    = "tokenizer_config.json"
		processor = "chat_template.json"
		two       = `{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}`
	)
	for name, c := range map[string]struct {
		files               map[string]string
		ask                 string
		plain, tools, wrong string
	}{
		"one text":         {map[string]string{config: `{"chat_template": "C"}`}, "", "C", "", ""},
		"a list":           {map[string]string{config: two}, "", "D", "T", ""},
		"an object":        {map[string]string{config: `{"chat_template": {"default": "D"}}`}, "", "D", "", ""},
		"one is named":     {map[string]string{config: two}, "tool_use", "T", "", ""},
		"the default":      {map[string]string{config: two}, "default", "D", "", ""},
		"a file":           {map[string]string{file: "F", config: two}, "", "F", "", ""},
		"files":            {map[string]string{file: "F", dir + "tool_use.jinja": "G", config: two}, "", "F", "G", ""},
		"a named file":     {map[string]string{file: "F", dir + "rag.jinja": "R"}, "rag", "R", "", ""},
		"a processor":      {map[string]string{processor: `{"chat_template": "P"}`}, "", "P", "", ""},
		"config before it": {map[string]string{processor: `{"chat_template": "P"}`, config: two}, "", "D", "T", ""},
		"behind a config":  {map[string]string{processor: `{"chat_template": "P"}`, config: "{}"}, "", "P", "", ""},
		"no default": {map[string]string{dir + "rag.jinja": "R", config: two}, "", "", "",
			`none is named "default" (there are: rag)`},
		"another name": {map[string]string{config: two}, "rag", "", "",
			`none is named "rag" (there are: default, tool_use)`},
		"none":              {map[string]string{config: "{}"}, "", "", "", "it has no chat template"},
		"nothing":           {nil, "", "", "", "it has no chat template"},
		"a wrong type":      {map[string]string{config: `{"chat_template": 5}`}, "", "", "", "is no text"},
		"a broken template": {map[string]string{file: "{% if %}"}, "", "", "", "line 1"},
	} {
		model := t.TempDir()
		for path, text := range c.files {
			at := filepath.Join(model, path)
			err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644))
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := chat.ReadModelTemplate(model, c.ask)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %s", name, err, c.wrong)
			}
		case err != nil || got != chat.Choice{Plain: c.plain, WithTools: c.tools}:
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestToolsChooseTheTemplate: a conversation with tools has the template for tools, and one without has the other.
func TestToolsChooseTheTemplate(t *testing.T) {
	m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
		Messages: "m", Tools: "tools", Role: "role", Content: "content", Train: chat.Everything,
		Template: chat.Choice{Plain: "plain", WithTools: "{{ tools[0] }}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	turns := []any{turn("user", "x")}
	for want, tools := range map[string]any{"plain": nil, "t": []any{"t"}} {
		if got := show(t, tokenizer(), document(t, m, turns, tools)); got != want {
			t.Errorf("with the tools %v: %q, want %q", tools, got, want)
		}
	}
	if got := show(t, tokenizer(), document(t, m, turns, []any{})); got != "plain" {
		t.Errorf("without a tool: %q", got)
	}
}

// TestVariables: a template has its variables, and the day of the date. Without a date, a template that asks for the
// day is refused.
func TestVariables(t *testing.T) {
	const ask = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y %-d %B %H:%M %j %A %%') }}{% else %}-" +
		"{% endif %}"
	for _, c := range []struct{ template, variables, want string }{
		{"{{ enable_thinking }} {{ n + 1 }} {{ x.y[1] }}",
			`{"enable_thinking": false, "n": 1, "x": {"y": [1, "</s>"]}}`, "False 2 {</s>}"},
		{"{{ bos_token }}", `{"bos_token": "b"}`, "b"},
		{ask, "", "-"},
		{ask, `{"date": "2026-11-03"}`, "03 Nov 2026 3 November 00:00 307 Tuesday %"},
		{ask, `{"date": "2026-11-03T17:05:00"}`, "03 Nov 2026 3 November 17:05 307 Tuesday %"},
		{ask + "{{ date }}", `{"date": "today"}`, "-today"},
	} {
		m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
			Messages: "m", Role: "role", Content: "content", Train: chat.Everything,
			Template: chat.Choice{Plain: c.template}, Variables: c.variables, BOS: "<s>",
		})
		if err != nil {
			t.Fatal(err)
		}
		got := show(t, tokenizer(), document(t, m, []any{turn("user", "x")}))
		if got != c.want {
			t.Errorf("%s with %s: %q, want %q", c.template, c.variables, got, c.want)
		}
	}
	for _, train := range []chat.Train{chat.Everything, chat.Assistant} {
		for _, variables := range []string{"", `{"date": "soon"}`} {
			_, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
				Messages: "m", Role: "role", Content: "content", Train: train, Variables: variables,
				Template: chat.Choice{Plain: "{% generation %}{{ strftime_now('%Y') }}{% endgeneration %}"},
			})
			if !errors.Is(err, millrace.ErrInvalid) || !strings.Contains(err.Error(), "variables: {date:") {
				t.Errorf("without a date: %v", err)
			}
		}
	}
	m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
		Messages: "m", Role: "role", Content: "content", Train: chat.Everything, Variables: `{"date": "2026-11-03"}`,
		Template: chat.Choice{Plain: "{% if messages | length == 1 %}{{ strftime_now('%Q') }}{% endif %}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Document(nil, &sources.Record{}, []any{[]any{turn("user", "x")}}, nil)
	if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), `"%Q"`) {
		t.Errorf("an unknown directive: %v", err)
	}
}
