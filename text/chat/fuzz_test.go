package chat_test

import (
	"encoding/json"
	"errors"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/text/chat"
)

// FuzzConversation makes documents of any messages and pairs: they have known tokens and the length that was set, or
// are bad.
func FuzzConversation(f *testing.F) {
	for _, s := range []string{`[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Ho ab"}]`,
		`[{"role": "assistant", "content": "\nH<|im_end|>"}]`, `"[{\"role\": \"user\", \"content\": \"\"}]"`,
		`[{"role": "tool", "content": [{"type": "text", "text": "x"}]}, {}]`, `[[], null, 1.5]`, `{"a": 1}`} {
		f.Add([]byte(s), "", "")
		f.Add([]byte(s), "ab", "\nH")
	}
	var makers []sources.Maker
	for _, c := range []chat.Conversation{{Train: chat.Assistant, Template: chat.Choice{Plain: chat.ChatML}},
		{Train: chat.LastAssistant, Template: chat.Choice{Plain: withBlocks}},
		{Train: chat.Everything, Template: chat.Choice{Plain: chat.ChatML}}} {
		c.Messages, c.Role, c.Content = "messages", "role", "content"
		c.TooLong = chat.TooLong{Tokens: 64, Truncate: true}
		m, err := chat.NewConversationMaker(tokenizer(), c)
		if err != nil {
			f.Fatal(err)
		}
		makers = append(makers, m)
	}
	pair := pairs(f, tokenizer(), chat.Pair{Prompt: "p", Completion: "c", BOS: true, EOS: true})
	check := func(t *testing.T, ids []uint32, err error) {
		if err != nil && !errors.Is(err, millrace.ErrBadSample) {
			t.Fatal(err)
		}
		for _, id := range ids {
			if id&^tokenid.Untrained >= 304 {
				t.Fatalf("there is no token %d", id)
			}
		}
	}
	f.Fuzz(func(t *testing.T, messages []byte, prompt, completion string) {
		var value any
		if json.Unmarshal(messages, &value) != nil {
			value = string(messages)
		}
		for _, m := range makers {
			ids, _, err := m.Document(nil, &sources.Record{}, []any{value}, func() {})
			if check(t, ids, err); err == nil && len(ids) > 64 {
				t.Fatalf("%d tokens, and 64 are the most", len(ids))
			}
		}
		ids, _, err := pair.Document(nil, &sources.Record{}, []any{prompt, completion}, func() {})
		check(t, ids, err)
	})
}
