package chat_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/text/chat"
	"millrace/text/tokenize"
)

// reference has the conversations, templates and results of testdata/reference.json.gz.
type reference struct {
	Templates map[string]string
	Chats     map[string]struct{ Messages, Tools json.RawMessage }
	Variables json.RawMessage
	BOS, EOS  string
	Cases     []struct {
		Template, Chat string
		Sum, Error     string // the digest of the ids and their mask, or why transformers refuses the conversation
		Trained        *int   // nil: the template has no {% generation %} blocks, and Sum no mask
		Pair           string // the digest of the same conversation as prompt and completion
	}
}

func readReference(t *testing.T) (ref reference) {
	t.Helper()
	f, err := os.Open("testdata/reference.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&ref); err != nil {
		t.Fatal(err)
	}
	return ref
}

// sumOf returns the digest of ids and their mask, as testdata/reference.py has it. Without isMasked, the mask is left
// out.
func sumOf(t *testing.T, ids []uint32, isMasked bool) string {
	t.Helper()
	mask := make([]int, len(ids))
	for i, id := range ids {
		mask[i] = 1 - int(id>>31)
	}
	both := []any{clean(ids), mask}
	if !isMasked {
		both[1] = nil
	}
	b, err := json.Marshal(both)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// TestAllTemplatesAsTransformers: every conversation of the reference has the ids and the mask of transformers with
// every template of TRL and axolotl. What transformers refuses is refused.
func TestAllTemplatesAsTransformers(t *testing.T) {
	ref := readReference(t)
	makers := map[string]sources.Maker{}
	encoding := referenceTokenizer(t)
	for name := range ref.Templates {
		m, err := chat.NewConversationMaker(encoding, ref.talk(name, chat.Assistant))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		makers[name] = m
	}
	equal, refused := 0, 0
	for _, c := range ref.Cases {
		messages, tools := ref.chat(c.Chat)
		ids, _, err := makers[c.Template].Document(nil, &sources.Record{}, []any{string(messages), tools}, nil)
		switch {
		case (err != nil) != (c.Error != ""):
			t.Errorf("%s, %s: got %v, want %q", c.Template, c.Chat, err, c.Error)
		case err != nil:
			refused++
		case sumOf(t, ids, c.Trained != nil) == c.Sum:
			equal++
		default:
			t.Errorf("%s, %s: got %s", c.Template, c.Chat, read(t, encoding, ids))
		}
	}
	t.Logf("%d templates, %d conversations equal, %d refused as by transformers", len(makers), equal, refused)
	if len(makers) != 108 || equal < 2700 {
		t.Errorf("%d of %d conversations are equal with %d templates", equal, len(ref.Cases), len(makers))
	}
}

// TestAllPairsAsTRL: a conversation that is divided into a prompt and its last message has the ids and the mask of TRL.
func TestAllPairsAsTRL(t *testing.T) {
	ref := readReference(t)
	makers := map[string]sources.Maker{}
	encoding := referenceTokenizer(t)
	for name := range ref.Templates {
		talk := ref.talk(name, chat.Everything)
		m, err := chat.NewPairMaker(encoding, chat.Pair{Prompt: "p", Completion: "c", BOS: true, EOS: true, Talk: &talk,
			TooLong: talk.TooLong})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		makers[name] = m
	}
	equal := 0
	for _, c := range ref.Cases {
		if c.Pair == "" {
			continue
		}
		raw, tools := ref.chat(c.Chat)
		var all []json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		prompt, err := json.Marshal(all[:len(all)-1])
		if err != nil {
			t.Fatal(err)
		}
		values := []any{string(prompt), string(all[len(all)-1]), tools}
		ids, _, err := makers[c.Template].Document(nil, &sources.Record{}, values, nil)
		if err != nil || sumOf(t, ids, true) != c.Pair {
			t.Errorf("%s, %s: got %v, %s", c.Template, c.Chat, err, read(t, encoding, ids))
		} else {
			equal++
		}
	}
	t.Logf("%d pairs are equal", equal)
	if equal < 2000 {
		t.Errorf("only %d pairs are equal", equal)
	}
}

func referenceTokenizer(t *testing.T) chat.Tokenizer {
	t.Helper()
	encoding, err := tokenize.Open(tokenize.Spec{Path: "testdata/reference_tokenizer.json"})
	if err != nil {
		t.Fatal(err)
	}
	return encoding
}

// talk returns the rendering with a template.
func (r *reference) talk(template string, train chat.Train) chat.Conversation {
	return chat.Conversation{
		Messages: "messages", Tools: "tools", Role: "role", Content: "content", Train: train,
		Template: chat.Choice{Plain: r.Templates[template]}, Variables: string(r.Variables), BOS: r.BOS, EOS: r.EOS,
		TooLong: chat.TooLong{Tokens: 1 << 20},
	}
}

// chat returns the JSON texts of a conversation and of its tools, nil if it has none.
func (r *reference) chat(name string) (messages json.RawMessage, tools any) {
	c := r.Chats[name]
	if string(c.Tools) == "null" {
		return c.Messages, nil
	}
	return c.Messages, string(c.Tools)
}

// read returns the text of a document, with untrained tokens in brackets.
func read(t *testing.T, encoding chat.Tokenizer, ids []uint32) string {
	t.Helper()
	var text []byte
	untrained := false
	for _, id := range ids {
		if is := id&tokenid.Untrained != 0; is != untrained {
			untrained = is
			text = append(text, map[bool]string{true: "⟦", false: "⟧"}[is]...)
		}
		var err error
		if text, err = encoding.Decode(text, []uint32{id &^ tokenid.Untrained}); err != nil {
			t.Fatal(err)
		}
	}
	return string(text)
}
