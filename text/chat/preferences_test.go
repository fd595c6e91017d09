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

// halves returns the segments of a pair, as show has them, joined by a bar; "" for a dropped pair.
func halves(t *testing.T, ids []uint32) string {
	t.Helper()
	var out []string
	for len(ids) > 0 {
		if ids[0]&tokenid.Begin != tokenid.Begin {
			t.Fatalf("no segment begins with %x", ids[0])
		}
		n := 1
		for n < len(ids) && ids[n]&tokenid.Begin != tokenid.Begin {
			n++
		}
		half := slices.Clone(ids[:n])
		half[0] &^= tokenid.Begin &^ tokenid.Untrained
		out = append(out, show(t, tokenizer(), half))
		ids = ids[n:]
	}
	return strings.Join(out, "|")
}

// TestPreferences: texts and messages, with a prompt and without one, as TRL and LLaMA-Factory write them.
func TestPreferences(t *testing.T) {
	talk := &chat.Conversation{Messages: "c", Role: "from", Content: "value", Train: chat.Assistant,
		Roles: map[string]string{"human": "user", "gpt": "assistant"}, Template: chat.Choice{Plain: chat.ChatML}}
	blocks := *talk
	blocks.Template.Plain = withBlocks
	say := func(from, value string) jinja.Object {
		return jinja.Object{Keys: []string{"from", "value"}, Values: []any{from, value}}
	}
	q, before := say("human", "q"), say("gpt", "b")
	const asked = "{<|im_start|>}user\nq{<|im_end|>}\n{<|im_start|>}assistant\n]"
	for name, c := range map[string]struct {
		p      chat.Preference
		values []any
		want   string
	}{
		"texts": {chat.Preference{Prompt: "p", BOS: true, EOS: true}, []any{"x", "yz", "pp"},
			"[{<s>}pp]x{</s>}|[{<s>}pp]yz{</s>}"},
		"shared text": {chat.Preference{}, []any{"q a yes", "q a no"}, "[q a] yes|[q a] no"},
		"messages": {chat.Preference{Prompt: "p", Talk: talk}, []any{say("gpt", "x"), say("gpt", "y"), []any{q}},
			"[" + asked + "x{<|im_end|>}[\n]|[" + asked + "y{<|im_end|>}[\n]"},
		"texts rendered": {chat.Preference{Prompt: "p", Talk: talk}, []any{"x", "y", "q"},
			"[" + asked + "x{<|im_end|>}[\n]|[" + asked + "y{<|im_end|>}[\n]"},
		"shared messages": {chat.Preference{Talk: talk}, []any{[]any{q, say("gpt", "x")}, []any{q, say("gpt", "y")}},
			"[" + asked + "x{<|im_end|>}[\n]|[" + asked + "y{<|im_end|>}[\n]"},
		"a prompt's turns are not trained on": {chat.Preference{Prompt: "p", Talk: &blocks},
			[]any{[]any{say("gpt", "x")}, "y", []any{q, before, q}},
			"[U:qA:b{</s>}U:qA:]x{</s>}|[U:qA:b{</s>}U:qA:]y{</s>}"},
		"truncated": {chat.Preference{Prompt: "p", TooLong: chat.TooLong{Tokens: 9, Truncate: true}},
			[]any{"x", "1234567", "p"}, "[p]x|[p]123456"},
		"both truncated": {chat.Preference{Prompt: "p", TooLong: chat.TooLong{Tokens: 9, Truncate: true}},
			[]any{"abcdxyz", "1234567", "p"}, "[p]abcd|[p]1234"},
		"dropped": {chat.Preference{Prompt: "p", TooLong: chat.TooLong{Tokens: 9, Drop: true}},
			[]any{"x", "12345678", "p"}, ""},
		"no answer is left": {chat.Preference{Prompt: "p", TooLong: chat.TooLong{Tokens: 9, Truncate: true}},
			[]any{"x", "y", "ppppp"}, ""},
	} {
		c.p.Chosen, c.p.Rejected = "c", "r"
		long := c.p.TooLong != chat.TooLong{}
		if !long {
			c.p.TooLong.Tokens = 1000
		}
		m, err := chat.NewPreferenceMaker(tokenizer(), c.p)
		if err != nil {
			t.Fatal(name, err)
		}
		r := &sources.Record{}
		got, _, err := m.Document([]uint32{7}, r, c.values, nil)
		if err != nil || got[0] != 7 || halves(t, got[1:]) != c.want || r.TooLong != long {
			t.Errorf("%s: got %q, too long %v, %v, want %q", name, halves(t, got[1:]), r.TooLong, err, c.want)
		}
	}
	for name, values := range map[string][]any{
		"no answer": {"x", "", "p"}, "a number": {"x", 5, "p"}, "nothing": {nil, "x", "p"}, "alike": {"x", "x", nil},
	} {
		m, err := chat.NewPreferenceMaker(tokenizer(), chat.Preference{Prompt: "p", Chosen: "c", Rejected: "r",
			TooLong: chat.TooLong{Tokens: 99}})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := m.Document(nil, &sources.Record{}, values, nil); !errors.Is(err, millrace.ErrBadSample) ||
			len(got) != 0 {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}
