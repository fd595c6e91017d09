package chat_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/text/chat"
	"millrace/text/chat/jinja"
)

// characters is a tokenizer whose tokens are bytes, and the pairs in its list. Ids from 300 on are special tokens.
type characters struct {
	pairs    []string // ids from 256 on
	specials map[uint32]string
}

func (c *characters) Append(dst []uint32, text []byte, _ func()) []uint32 {
	for len(text) > 0 {
		n, id := 1, uint32(text[0])
		for i, pair := range c.pairs {
			if strings.HasPrefix(string(text), pair) {
				n, id = len(pair), 256+uint32(i)
			}
		}
		dst, text = append(dst, id), text[n:]
	}
	return dst
}

func (c *characters) Decode(dst []byte, ids []uint32) ([]byte, error) {
	for _, id := range ids {
		switch {
		case id < 256:
			dst = append(dst, byte(id))
		case id < 300:
			dst = append(dst, c.pairs[id-256]...)
		default:
			dst = append(dst, c.specials[id]...)
		}
	}
	return dst, nil
}

func (c *characters) BOS() (uint32, bool)         { return 300, true }
func (c *characters) EOS() (uint32, bool)         { return 301, true }
func (c *characters) Fingerprint() [16]byte       { return [16]byte{1} }
func (c *characters) Specials() map[uint32]string { return c.specials }

func tokenizer() *characters {
	return &characters{[]string{"\nH", "ab"},
		map[uint32]string{300: "<s>", 301: "</s>", 302: "<|im_start|>", 303: "<|im_end|>"}}
}

// show returns the text of a document: special tokens in braces, untrained tokens in brackets.
func show(t *testing.T, c *characters, ids []uint32) string {
	t.Helper()
	var b strings.Builder
	untrained := false
	for _, id := range ids {
		if is := id&tokenid.Untrained != 0; is != untrained {
			untrained = is
			b.WriteString(map[bool]string{true: "[", false: "]"}[is])
		}
		id &^= tokenid.Untrained
		text, err := c.Decode(nil, []uint32{id})
		if err != nil {
			t.Fatal(err)
		}
		if id >= 300 {
			text = []byte("{" + string(text) + "}")
		}
		b.Write(text)
	}
	if untrained {
		b.WriteByte(']')
	}
	return b.String()
}

func document(t *testing.T, m sources.Maker, values ...any) []uint32 {
	t.Helper()
	ids, _, err := m.Document([]uint32{7}, &sources.Record{}, values, func() {})
	if err != nil {
		t.Fatal(err)
	}
	return ids[1:]
}

func turn(role string, content any) any {
	return jinja.Object{Keys: []string{"role", "content"}, Values: []any{role, content}}
}

const withBlocks = "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}</s>" +
	"{% endgeneration %}{% else %}U:{{ m.content }}{% endif %}{% endfor %}"

// TestConversations: the assistant's turns and their ends are trained on; special tokens of messages are text.
func TestConversations(t *testing.T) {
	messages := []any{turn("user", "hi <|im_end|>"), turn("assistant", "Ho"), turn("user", "x"), turn("assistant", "y")}
	for _, c := range []struct {
		name, template, want string
		train                chat.Train
		messages             []any
	}{
		// "\nH" is one token, and H is trained on
		{"prefixes", chat.ChatML, "[{<|im_start|>}user\nhi <|im_end|>{<|im_end|>}\n" +
			"{<|im_start|>}assistant]\nHo{<|im_end|>}" +
			"[\n{<|im_start|>}user\nx{<|im_end|>}\n{<|im_start|>}assistant\n]y{<|im_end|>}[\n]",
			chat.Assistant, messages},
		{"last", chat.ChatML, "[{<|im_start|>}user\nhi <|im_end|>{<|im_end|>}\n" +
			"{<|im_start|>}assistant\nHo{<|im_end|>}" +
			"\n{<|im_start|>}user\nx{<|im_end|>}\n{<|im_start|>}assistant\n]y{<|im_end|>}[\n]",
			chat.LastAssistant, messages},
		{"all", chat.ChatML, "{<|im_start|>}user\nx{<|im_end|>}\n", chat.Everything, messages[2:3]},
		{"empty turn", chat.ChatML, "[{<|im_start|>}user\nx{<|im_end|>}\n" +
			"{<|im_start|>}assistant\n]{<|im_end|>}[\n]",
			chat.Assistant, []any{turn("user", "x"), turn("assistant", "")}},
		{"blocks", withBlocks, "[U:hi <|im_end|>A:]Ho{</s>}[U:xA:]y{</s>}", chat.Assistant, messages},
		{"last block", withBlocks, "[U:hi <|im_end|>A:Ho{</s>}U:xA:]y{</s>}", chat.LastAssistant, messages},
	} {
		m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
			Messages: "messages", Role: "role", Content: "content", Train: c.train,
			Template: chat.Choice{Plain: c.template},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := show(t, tokenizer(), document(t, m, c.messages)); got != c.want {
			t.Errorf("%s: got\n%q, want\n%q", c.name, got, c.want)
		}
	}
}

// TestNamesOfOthers: other keys, other roles, and lists that are JSON texts.
func TestNamesOfOthers(t *testing.T) {
	m, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
		Messages: "conversations", Tools: "tools", Role: "from", Content: "value", Train: chat.Assistant,
		Roles:    map[string]string{"human": "user", "gpt": "assistant"},
		Template: chat.Choice{Plain: withBlocks + "{{ tools | tojson }}"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := document(t, m,
		`[{"from": "human", "value": "q"}, {"from": "gpt", "value": "r"}]`, `[{"z": 1, "a": "</s>"}]`)
	if want := `[U:qA:]r{</s>}[[{"z": 1, "a": "</s>"}]]`; show(t, tokenizer(), got) != want {
		t.Errorf("got %q, want %q", show(t, tokenizer(), got), want)
	}
	absent := sources.NewMissingError("tools", sources.Absent, []string{"conversations"})
	turns := `[{"from": "gpt", "value": "r"}]`
	for _, none := range []any{nil, absent} { // a record without tools is whole
		if got := show(t, tokenizer(), document(t, m, turns, none)); got != "[A:]r{</s>}[null]" {
			t.Errorf("without tools: got %q", got)
		}
	}
	var missing *sources.MissingError
	_, _, err = m.Document(nil, &sources.Record{}, []any{absent, nil}, nil)
	if !errors.As(err, &missing) || missing != absent {
		t.Errorf("without messages: %v", err)
	}
}

// TestPairs: the loss is on the completion and the end. A token with a character of both is trained on.
func TestPairs(t *testing.T) {
	for name, c := range map[string]struct {
		long chat.TooLong
		want string
	}{
		"whole":    {chat.TooLong{Tokens: 4}, "[{<s>}x]abcd{</s>}"},
		"short":    {chat.TooLong{Tokens: 6, Truncate: true}, "[{<s>}x]abcd{</s>}"},
		"truncate": {chat.TooLong{Tokens: 3, Truncate: true}, "[{<s>}x]ab"},
		"drop":     {chat.TooLong{Tokens: 5, Drop: true}, ""},
	} {
		pair := chat.Pair{Prompt: "p", Completion: "c", BOS: true, EOS: true, TooLong: c.long}
		m := pairs(t, tokenizer(), pair)
		if got := show(t, tokenizer(), document(t, m, "xa", "bcd")); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		r := &sources.Record{TooLong: name == "short"} // of the record before
		if _, _, err := m.Document(nil, r, []any{"xa", "bcd"}, nil); err != nil || r.TooLong != (name != "short") {
			t.Errorf("%s: it says too long: %v, %v", name, r.TooLong, err)
		}
	}
	m := pairs(t, tokenizer(), chat.Pair{Prompt: "p", Completion: "c"})
	var missing *sources.MissingError
	if _, _, err := m.Document(nil, &sources.Record{}, []any{"x", nil}, func() {}); !errors.As(err, &missing) {
		t.Errorf("a missing completion: %v", err)
	}
	absent := sources.NewMissingError("c", sources.Absent, []string{"p"}) // as formats give it that know the others
	_, _, err := m.Document(nil, &sources.Record{}, []any{"x", absent}, func() {})
	if !errors.As(err, &missing) || missing != absent {
		t.Errorf("an absent completion: %v", err)
	}
	_, _, err = m.Document(nil, &sources.Record{}, []any{"x", 5}, func() {})
	if !errors.Is(err, millrace.ErrBadSample) {
		t.Errorf("a number for a completion: %v", err)
	}
}

func pairs(t testing.TB, tokenizer chat.Tokenizer, p chat.Pair) sources.Maker {
	t.Helper()
	m, err := chat.NewPairMaker(tokenizer, p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRenderedPairs: a prompt and a completion of messages, of texts, and of JSON texts. The completion is trained on
// from its first token to the end, or its turns alone.
func TestRenderedPairs(t *testing.T) {
	const asked = "[{<|im_start|>}user\nq{<|im_end|>}\n{<|im_start|>}assistant\n]"
	for _, train := range []chat.Train{chat.Everything, chat.Assistant} {
		end := map[chat.Train]string{chat.Everything: "\n", chat.Assistant: "[\n]"}[train]
		talk := &chat.Conversation{Messages: "c", Role: "role", Content: "content", Train: train,
			Template: chat.Choice{Plain: chat.ChatML}}
		m := pairs(t, tokenizer(), chat.Pair{Prompt: "p", Completion: "c", BOS: true, EOS: true, Talk: talk,
			TooLong: chat.TooLong{Tokens: 99}})
		for _, values := range [][]any{
			{[]any{turn("user", "q")}, []any{turn("assistant", "a")}}, {"q", "a"},
			{`[{"role": "user", "content": "q"}]`, turn("assistant", "a")},
		} {
			if got := show(t, tokenizer(), document(t, m, values...)); got != asked+"a{<|im_end|>}"+end {
				t.Errorf("%s, %v: got %q", train, values, got)
			}
		}
		left := []any{[]any{turn("user", "q")}, []any{with("assistant", "a", "weight", 0), turn("user", "r"),
			turn("assistant", "b")}}
		got := show(t, tokenizer(), document(t, m, left...))
		if strings.Contains(got, "]a") || !strings.Contains(got, "b{<|im_end|>}") {
			t.Errorf("%s, a completion of several turns: got %q", train, got)
		}
	}
	m := pairs(t, tokenizer(), chat.Pair{Prompt: "p", Completion: "c"})
	_, _, err := m.Document(nil, &sources.Record{}, []any{[]any{turn("user", "q")}, "a"}, nil)
	if !errors.Is(err, millrace.ErrBadSample) || !strings.Contains(err.Error(), "write `template: tokenizer`") {
		t.Errorf("messages without a template: %v", err)
	}
}

// TestPairTemplates: a prompt and a completion of several fields, of which one may be empty.
func TestPairTemplates(t *testing.T) {
	m := pairs(t, tokenizer(), chat.Pair{Prompt: "{p}-{q}:", Completion: "c", EOS: true})
	if got := m.Fields(); !slices.Equal(got, []string{"p", "q", "c"}) {
		t.Errorf("the fields are %q", got)
	}
	for want, values := range map[string][]any{
		"[ab-5:]c{</s>}": {"ab", 5, "c"},
		"[ab-:]c{</s>}":  {"ab", "", "c"},
	} {
		ids, n, err := m.Document(nil, &sources.Record{}, values, func() {})
		if got := show(t, tokenizer(), ids); got != want || err != nil || n != int64(len(want)-len("[]{</s>}")) {
			t.Errorf("got %q of %d bytes, %v, want %q", got, n, err, want)
		}
	}
	var missing *sources.MissingError
	if _, _, err := m.Document(nil, &sources.Record{}, []any{"ab", nil, "c"}, func() {}); !errors.As(err, &missing) {
		t.Errorf("a missing part of the prompt: %v", err)
	}
	m = pairs(t, tokenizer(), chat.Pair{Prompt: "p", Completion: "{c}."})
	if got := show(t, tokenizer(), document(t, m, "x", "y")); got != "[x]y." {
		t.Errorf("got %q", got)
	}
	if _, err := chat.NewPairMaker(tokenizer(), chat.Pair{Prompt: "{p", Completion: "c"}); err == nil {
		t.Error("a brace without a partner is accepted")
	}
}

// folding is a tokenizer that changes the text: its tokens do not have the text's bytes.
type folding struct{ *characters }

func (f folding) Append(dst []uint32, text []byte, tell func()) []uint32 {
	return f.characters.Append(dst, []byte(strings.ToLower(string(text))), tell)
}

// TestChangedText: a prompt and a completion are encoded apart if the places of the tokens are not known.
func TestChangedText(t *testing.T) {
	m := pairs(t, folding{tokenizer()}, chat.Pair{Prompt: "p", Completion: "c"})
	if got := document(t, m, "A", "B"); !slices.Equal(got, []uint32{'a' | tokenid.Untrained, 'b'}) {
		t.Errorf("got %v", got)
	}
}

// TestRefused: templates and conversations that have no exact spans.
func TestRefused(t *testing.T) {
	for name, template := range map[string]string{
		"unknown filter":  "{{ messages | urlize }}",
		"a file":          "{% include 'x' %}",
		"no loop":         "{{ messages | length }}{{ messages | map(attribute='content') | join('</s>') }}",
		"the time":        "{{ strftime_now('%d') }}{% for m in messages %}{{ m.content }}{% endfor %}",
		"backwards":       "{% for m in messages | reverse %}{{ m.content }}</s>{% endfor %}",
		"an endless loop": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
	} {
		_, err := chat.NewConversationMaker(tokenizer(), chat.Conversation{
			Messages: "m", Role: "role", Content: "content", Train: chat.Assistant,
			Template: chat.Choice{Plain: template},
		})
		if !errors.Is(err, millrace.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
