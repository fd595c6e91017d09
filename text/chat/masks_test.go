package chat_test

import (
	"encoding/json"
	"os"
	"testing"

	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/text/chat"
	"millrace/text/tokenize"
)

// TestMasksAreThoseOfTransformers: with templates that have {% generation %} blocks, ids and masks are those of
// apply_chat_template(…, return_assistant_tokens_mask=True). testdata/make.py wrote them.
func TestMasksAreThoseOfTransformers(t *testing.T) {
	raw, err := os.ReadFile("testdata/masks.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Templates map[string]string
		EOS       string
		Cases     []struct {
			Template string
			Messages json.RawMessage
			IDs      []uint32
			Mask     []int
		}
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	encoding, err := tokenize.Open(tokenize.Spec{Path: "testdata/tokenizer.json"})
	if err != nil {
		t.Fatal(err)
	}
	trained := 0
	for i, c := range want.Cases {
		m, err := chat.NewConversationMaker(encoding, chat.Conversation{
			Messages: "messages", Role: "role", Content: "content", Train: chat.Assistant,
			Template: chat.Choice{Plain: want.Templates[c.Template]}, EOS: want.EOS,
		})
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := m.Document(nil, &sources.Record{}, []any{string(c.Messages)}, nil)
		if err != nil || len(got) != len(c.IDs) || len(got) != len(c.Mask) {
			t.Fatalf("case %d, %s: %d tokens, %v, want %d", i, c.Template, len(got), err, len(c.IDs))
		}
		for at, id := range got {
			if mask := 1 - int(id>>31); id&^tokenid.Untrained != c.IDs[at] || mask != c.Mask[at] {
				t.Errorf("case %d, %s, token %d: id %d, mask %d, want %d, %d", i, c.Template, at,
					id&^tokenid.Untrained, mask, c.IDs[at], c.Mask[at])
			}
			trained += c.Mask[at]
		}
	}
	if trained < 100 {
		t.Errorf("only %d tokens are trained on", trained)
	}
}
