package chat

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"millrace"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/sources/values"
	"millrace/text/chat/jinja"
)

// Train names the parts of a conversation that are trained on.
type Train string

// The parts.
const (
	Assistant     Train = "assistant"      // the text of the assistant, with the end of its turns
	LastAssistant Train = "last_assistant" // the same of the last such turn alone
	Everything    Train = "all"
)

// Words returns the parts.
func (Train) Words() []string {
	return []string{string(Assistant), string(LastAssistant), string(Everything)}
}

// Conversation describes documents of conversations.
type Conversation struct {
	Messages      string            // dotted path of the list of messages, or of its JSON text
	Tools         string            // dotted path of the list of tools, or of its JSON text; empty: none
	Role, Content string            // keys of a message
	Roles         map[string]string // role of the record → role of the template
	Train         Train
	Template      Choice
	Variables     string // of the template: the JSON text of an object; empty: none
	BOS, EOS      string // values of bos_token and eos_token
	TooLong       TooLong
}

type conversationMaker struct {
	Conversation
	t         *encoder
	plain     *jinja.Template
	withTools *jinja.Template // of conversations with tools
	constants []jinja.Value   // the variables that all conversations share
}

// NewConversationMaker returns the maker of the documents of conversations. A template that cannot be parsed is an
// error that wraps millrace.ErrInvalid.
func NewConversationMaker(t Tokenizer, c Conversation) (sources.Maker, error) {
	plain, err := jinja.Parse(c.Template.Plain)
	if err != nil {
		return nil, err
	}
	m := &conversationMaker{Conversation: c, t: newEncoder(t), plain: plain, withTools: plain}
	if c.Template.WithTools != "" {
		if m.withTools, err = jinja.Parse(c.Template.WithTools); err != nil {
			return nil, err
		}
	}
	if m.constants, err = c.constants(); err != nil {
		return nil, err
	}
	return m, m.try()
}

// try renders short conversations, also with the parts of vision models as content. It returns an error if all fail:
// then no conversation could be rendered.
func (m *conversationMaker) try() (err error) {
	turn := func(role string, content any) any {
		return jinja.Object{Keys: []string{"role", "content"}, Values: []any{role, content}}
	}
	part := func(text string) any {
		return []any{jinja.Object{Keys: []string{"type", "text"}, Values: []any{"text", text}}}
	}
	for _, probe := range [][]any{
		{turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", "d")},
		{turn("user", "a"), turn("assistant", "b")},
		{turn("user", part("a")), turn("assistant", part("b"))},
	} {
		_, failed := m.passage(talk{messages: probe, left: make([]bool, len(probe))}, 0)
		if failed == nil || m.Train == Everything && !errors.Is(failed, jinja.ErrNoTime) {
			return nil
		}
		if err = cmp.Or(err, failed); errors.Is(failed, jinja.ErrEndless) {
			break
		}
	}
	return millrace.Errorf(millrace.ErrInvalid, "try the chat template on a short conversation: %v", err)
}

// constants returns the values that a template has beside those of a conversation.
func (c *Conversation) constants() (named []jinja.Value, err error) {
	if c.BOS != "" {
		named = append(named, jinja.Value{Name: "bos_token", Value: c.BOS})
	}
	if c.EOS != "" {
		named = append(named, jinja.Value{Name: "eos_token", Value: c.EOS})
	}
	if c.Variables == "" {
		return named, nil
	}
	all, err := values.FromJSON([]byte(c.Variables))
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "read the variables of the chat template: %v", err)
	}
	given := jinja.ObjectOf(all)
	for i, name := range given.Keys {
		named = append(named, jinja.Value{Name: name, Value: given.Values[i]})
	}
	if text, ok := given.Get("date"); ok {
		if date, ok := dateOf(text); ok {
			named = append(named, jinja.Value{Name: "strftime_now", Value: date})
		}
	}
	return named, nil
}

// dateOf returns the moment that a variable names: a day, or a day and a time.
func dateOf(v any) (time.Time, bool) {
	text, _ := v.(string)
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05", time.DateTime} {
		if date, err := time.Parse(layout, text); err == nil {
			return date, true
		}
	}
	return time.Time{}, false
}

// Fields implements sources.Maker.
func (m *conversationMaker) Fields() []string {
	if m.Tools == "" {
		return []string{m.Messages}
	}
	return []string{m.Messages, m.Tools}
}

// Settings implements sources.Maker.
func (m *conversationMaker) Settings() string {
	return fmt.Sprintf("conversation 2 %q", m.Conversation.settings())
}

// revision counts the releases that render some messages otherwise: the second drops keys that are null, names the
// reasoning as transformers does, and obeys weights.
const revision = "rendering 2"

// settings writes everything that decides the rendering.
func (c *Conversation) settings() string {
	text := fmt.Sprintf("{%v %v %v %v %v %v %v %v %v %v}", c.Messages, c.Tools, c.Role, c.Content, c.Roles, c.Train,
		c.Template.Plain, c.BOS, c.EOS, c.TooLong)
	if c.Template.WithTools != "" {
		text += fmt.Sprintf(" with tools %q", c.Template.WithTools)
	}
	if c.Variables != "" {
		text += " variables " + c.Variables
	}
	return text
}

// Document implements sources.Maker.
func (m *conversationMaker) Document(
	dst []uint32, r *sources.Record, values []any, tell func(),
) ([]uint32, int64, error) {
	if err := missing(m.Messages, values[0]); err != nil {
		return dst, 0, err
	}
	messages, err := listOf(m.Messages, values[0])
	if err != nil {
		return dst, 0, err
	}
	var t talk
	for i := range messages {
		if err := t.add(m, m.Messages, i, messages[i]); err != nil {
			return dst, 0, err
		}
	}
	if m.Tools != "" {
		if t.tools, err = m.toolsOf(values[1]); err != nil {
			return dst, 0, err
		}
	}
	p, err := m.passage(t, 0)
	if err != nil {
		return dst, 0, err
	}
	first := len(dst)
	dst = encode(dst, m.t, p, tell)
	return m.TooLong.cut(dst, first, r), int64(len(p.text)), nil
}

// toolsOf returns the tools of a record, nil if it has none.
func (m *conversationMaker) toolsOf(v any) (any, error) {
	if missing(m.Tools, v) != nil {
		return nil, nil
	}
	all, err := listOf(m.Tools, v)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return all, nil
}

// missing returns the *sources.MissingError of a field without a value, nil if there is a value.
func missing(name string, v any) error {
	switch v := v.(type) {
	case nil:
		return sources.NewMissingError(name, sources.Null, nil)
	case *sources.MissingError:
		return v
	}
	return nil
}

// listOf returns a list of a record, which may be a JSON text. The items are copied.
func listOf(name string, v any) ([]any, error) {
	if text, ok := v.(string); ok {
		decoded, err := values.FromJSON([]byte(text))
		if err != nil {
			return nil, millrace.Errorf(millrace.ErrBadSample, "field %q is a text that is not JSON: %v", name, err)
		}
		v = decoded
	}
	list, ok := v.([]any)
	if !ok {
		return nil, millrace.Errorf(millrace.ErrBadSample, "field %q is %s, not a list", name, fields.KindOf(v))
	}
	return append([]any(nil), list...), nil
}
