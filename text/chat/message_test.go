package chat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace"
	"millrace/sources"
	"millrace/sources/sourcetest"
	"millrace/text/chat"
)

// with returns a message with further keys.
func with(role string, content any, more ...any) any {
	m := map[string]any{"role": role, "content": content}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return sourcetest.Objects(m)
}

func conversations(t *testing.T, template string, train chat.Train) sources.Maker {
	t.Helper()
	m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
		Messages: "messages", Role: "role", Content: "content", Train: train, Template: chat.Choice{Plain: template},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestWeightsOfTurns: a turn with weight 0 or train false is not trained on, whatever finds the turns.
func TestWeightsOfTurns(t *testing.T) {
	const loop = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
	for _, c := range []struct {
		template, first, last string // with the first answer left out, and with the last one
		train                 chat.Train
	}{
		{loop, "[qa{</s>}r]b{</s>}", "[q]a{</s>}[rb{</s>}]", chat.Assistant},
		{loop, "[qa{</s>}r]b{</s>}", "[qa{</s>}rb{</s>}]", chat.LastAssistant},
		{loop, "q[a{</s>}]rb{</s>}", "qa{</s>}r[b{</s>}]", chat.Everything},
		{withBlocks, "[U:qA:a{</s>}U:rA:]b{</s>}", "[U:qA:]a{</s>}[U:rA:b{</s>}]", chat.Assistant},
		// one block of all answers
		{"{% generation %}{% for m in messages if m.role == 'assistant' %}{{ m.content }}</s>{% endfor %}" +
			"{% endgeneration %}", "[a{</s>}]b{</s>}", "a{</s>}[b{</s>}]", chat.Assistant},
	} {
		for _, key := range []struct {
			name    string
			no, yes any
		}{{"weight", 0, 1}, {"weight", 0.0, 1.0}, {"weight", false, true}, {"weight", 0, nil}, {"train", false, true},
			{"train", 0, 1}} {
			m := conversations(t, c.template, c.train)
			for want, weights := range map[string][2]any{c.first: {key.no, key.yes}, c.last: {key.yes, key.no}} {
				got := show(t, tokenizer(), document(t, m, []any{
					turn("user", "q"), with("assistant", "a", key.name, weights[0]),
					with("user", "r", key.name, key.yes), with("assistant", "b", key.name, weights[1])}))
				if got != want {
					t.Errorf("%s, %s, %s %v: got %q, want %q", c.template, c.train, key.name, weights, got, want)
				}
			}
		}
	}
}

// TestRefusedMessages: parts that are no text and parts of a weight are refused by name.
func TestRefusedMessages(t *testing.T) {
	text := map[string]any{"type": "text", "text": "x"}
	m := conversations(t, withBlocks, chat.Assistant)
	refused := func(message any, want string) {
		t.Helper()
		_, _, err := m.Document(nil, &sources.Record{}, []any{[]any{turn("user", "q"), message}}, nil)
		if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(fmt.Sprint(err), want) ||
			!strings.Contains(err.Error(), `message 1 of field "messages"`) {
			t.Errorf("%v: got %v, want %s", message, err, want)
		}
	}
	for _, weight := range []any{0.5, 2, -1, "0", []any{}} {
		refused(with("assistant", "a", "weight", weight), "has the weight")
		refused(with("assistant", "a", "train", weight), "has the train")
	}
	for _, part := range []map[string]any{
		{"type": "image"}, {"type": "image_url", "image_url": map[string]any{"url": "https://x/y.png"}},
		{"type": "input_image", "image_url": "data:image/png;base64,"}, {"type": "image", "image": "a.png"},
		{"type": "video", "video": "a.mp4"}, {"type": "video_url"}, {"type": "audio", "audio": "a.wav"},
		{"type": "input_audio", "input_audio": map[string]any{"data": "", "format": "wav"}}, {"type": "audio_url"},
		{"image": "a.png"}, {"image_url": "a.png"}, {"images": []any{"a"}}, {"type": "file", "file": map[string]any{}},
		{"image": []byte{1}, "type": "text", "text": ""}, {"type": "IMAGE"}, {"type": "image-url"},
	} {
		refused(with("user", []any{text, part}), "in part 1 of its content: "+millrace.UnreadMedia)
		refused(with("user", part), "in part 0 of its content: "+millrace.UnreadMedia)
	}
	refused(with("user", "x", "images", []any{"a.png"}), "has images: "+millrace.UnreadMedia)
	for _, message := range []any{ // that are texts
		with("user", []any{text}), with("user", "<image>"), with("user", "x", "images", []any{}),
		with("user", "x", "images", nil), with("user", "x", "file", "a.py"),
		with("user", []any{map[string]any{"type": "text", "text": "x", "image": nil, "video": "", "file_name": "a"}}),
	} {
		messages := []any{message, turn("assistant", "a")}
		if _, _, err := m.Document(nil, &sources.Record{}, []any{messages}, nil); err != nil {
			t.Errorf("%v: %v", message, err)
		}
	}
}

// TestMessagesAsTransformers: null keys are absent, reasoning has each of its names, and a role makes control tokens.
func TestMessagesAsTransformers(t *testing.T) {
	const template = "{% for m in messages %}{{ m | tojson }}{{ '<|' + m.role + '|>' }}{% endfor %}"
	c := tokenizer()
	c.specials[304] = "<|user|>"
	m, err := chat.NewConversationMaker(c, chat.Conversation{
		Messages: "messages", Role: "role", Content: "content", Train: chat.Everything,
		Template: chat.Choice{Plain: template},
	})
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		`{"role": "user", "x": null, "content": "a"}`: `{"role": "user", "content": "a"}{<|user|>}`,
		`{"role": "user", "content": null}`:           `{"role": "user"}{<|user|>}`,
		`{"role": "user", "reasoning": "r"}`: `{"thinking": "r", "role": "user", "reasoning": "r", ` +
			`"reasoning_content": "r"}{<|user|>}`,
		`{"role": "user", "thinking": "t", "reasoning_content": "c"}`: `{"role": "user", "thinking": "t", ` +
			`"reasoning_content": "c"}{<|user|>}`,
		`{"role": "x|>y", "content": "<|user|>"}`: `{"role": "x|>y", "content": "<|user|>"}<|x|>y|>`,
	} {
		if got := show(t, c, document(t, m, "["+message+"]")); got != want {
			t.Errorf("%s: got %s, want %s", message, got, want)
		}
	}
}

// TestReasoningTemplates: each conversation is judged by itself. Earlier turns are trained on as they are rendered.
func TestReasoningTemplates(t *testing.T) {
	// as Qwen 3.5: earlier turns lose their reasoning, and the prompt for a generation opens it
	const template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}" +
		"<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}" +
		"{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}"
	think := func(content, reasoning string) any { return with("assistant", content, "reasoning_content", reasoning) }
	for train, want := range map[chat.Train]string{
		chat.Assistant: "[{<|im_start|>}user\nq{<|im_end|>}\n{<|im_start|>}assistant\n]a{<|im_end|>}[\n" +
			"{<|im_start|>}user\nr{<|im_end|>}\n{<|im_start|>}assistant\n<think>]y</think>b{<|im_end|>}[\n]",
		chat.LastAssistant: "[{<|im_start|>}user\nq{<|im_end|>}\n{<|im_start|>}assistant\na{<|im_end|>}\n" +
			"{<|im_start|>}user\nr{<|im_end|>}\n{<|im_start|>}assistant\n<think>]y</think>b{<|im_end|>}[\n]",
	} {
		m := conversations(t, template, train)
		got := document(t, m, []any{turn("user", "q"), think("a", "x"), turn("user", "r"), think("b", "y")})
		if text := show(t, tokenizer(), got); text != want {
			t.Errorf("%s: got %q, want %q", train, text, want)
		}
	}
}

// TestResultsInsideATurn: results of tools that a template writes into the assistant's turn, as Gemma 4's does, are not
// trained on. The tool's name is the assistant's own text there.
func TestResultsInsideATurn(t *testing.T) {
	const template = "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}</s>{% endif %}" +
		"{% if m.role == 'assistant' %}A{% for c in m.calls %}<{{ c }}>{% endfor %}{% if not loop.last %}" +
		"{% for r in messages[loop.index:] if r.role == 'tool' %}({{ m.calls[loop.index0] }}={{ r.content }})" +
		"{% endfor %}{% endif %}{{ m.content }}</s>{% endif %}{% endfor %}{% if add_generation_prompt %}A{% endif %}"
	m := conversations(t, template, chat.Assistant)
	got := show(t, tokenizer(), document(t, m, []any{turn("user", "q"),
		with("assistant", "two", "calls", []any{"x", "y"}), turn("tool", "1"), turn("tool", "2")}))
	if want := "[Uq{</s>}A]<x><y>[(x=1)(y=2)]two{</s>}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got = show(t, tokenizer(), document(t, m, []any{turn("user", "q"),
		with("assistant", "", "calls", []any{"x"}), turn("tool", "1")}))
	if want := "[Uq{</s>}A]<x>[(x=1){</s>}]"; got != want {
		t.Errorf("without a text: got %q, want %q", got, want)
	}
}

// TestOtherNamesOfKeys: if a source names the keys of a message, keys of the template's names are no part of it.
func TestOtherNamesOfKeys(t *testing.T) {
	m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
		Messages: "messages", Role: "from", Content: "value", Roles: map[string]string{"gpt": "assistant"},
		Train: chat.Assistant, Template: chat.Choice{Plain: withBlocks},
	})
	if err != nil {
		t.Fatal(err)
	}
	const messages = `[{"role": "x", "content": "y", "from": "user", "value": "q"},
		{"value": "a", "from": "gpt", "content": "y", "role": "user"}]`
	if got, want := show(t, tokenizer(), document(t, m, messages)), "[U:qA:]a{</s>}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
