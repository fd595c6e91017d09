package chat

import (
	"fmt"

	"millrace"
	"millrace/sources"
	"millrace/sources/chat/jinja"
	"millrace/sources/fields"
)

// Train names the parts of a conversation that are trained on.
type Train string

// The parts.
const (
	Assistant     Train = "assistant"      // what the assistant says, with the end of its turns
	LastAssistant Train = "last_assistant" // the same of the last such turn alone
	Everything    Train = "all"
)

// Conversation describes documents of conversations.
type Conversation struct {
	Messages      string            // dotted path of the list of messages, or of its JSON text
	Tools         string            // dotted path of the list of tools, or of its JSON text; empty: none
	Role, Content string            // keys of a message
	Roles         map[string]string // role of the record → role of the template
	Train         Train
	Template      string // the template's source
	BOS, EOS      string // values of bos_token and eos_token
	TooLong       TooLong
}

type conversationMaker struct {
	Conversation
	t        *encoder
	template *jinja.Template
}

// NewConversationMaker returns the maker of the documents of conversations. A template that is not understood is an
// error that wraps millrace.ErrInvalid.
func NewConversationMaker(t Tokenizer, c Conversation) (sources.Maker, error) {
	template, err := jinja.Parse(c.Template)
	if err != nil {
		return nil, err
	}
	m := &conversationMaker{c, newEncoder(t), template}
	if c.Train == Everything || template.HasGeneration {
		return m, nil
	}
	turn := func(role, content string) any {
		return jinja.Object{Keys: []string{"role", "content"}, Values: []any{role, content}}
	}
	probe := []any{turn("user", "a"), turn("assistant", "b"), turn("user", "c"), turn("assistant", "d")}
	if _, err := m.passage(probe, nil, 0); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "try the chat template on a short conversation: %v", err)
	}
	return m, nil
}

// Fields implements sources.Maker.
func (m *conversationMaker) Fields() []string {
	if m.Tools == "" {
		return []string{m.Messages}
	}
	return []string{m.Messages, m.Tools}
}

// TakesJSON implements sources.JSONTaker: templates print objects with their keys in order.
func (*conversationMaker) TakesJSON() bool { return true }

// LimitsLength implements sources.Limiter.
func (*conversationMaker) LimitsLength() bool { return true }

// Settings implements sources.Maker.
func (m *conversationMaker) Settings() string {
	return fmt.Sprintf("conversation 2 %q", fmt.Sprint(m.Conversation))
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
	for i := range messages {
		if messages[i], err = m.message(i, messages[i]); err != nil {
			return dst, 0, err
		}
	}
	var tools any
	if m.Tools != "" && missing(m.Tools, values[1]) == nil {
		all, err := listOf(m.Tools, values[1])
		if err != nil {
			return dst, 0, err
		}
		if len(all) > 0 {
			tools = all
		}
	}
	p, err := m.passage(messages, tools, 0)
	if err != nil {
		return dst, 0, err
	}
	first := len(dst)
	dst = encode(dst, m.t, p, tell)
	return m.TooLong.cut(dst, first, r), int64(len(p.text)), nil
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
		decoded, err := jinja.DecodeJSON([]byte(text))
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

// message returns a message with the keys and the roles of templates.
func (m *conversationMaker) message(number int, v any) (any, error) {
	o := jinja.ObjectOf(v)
	role := ""
	for i, key := range o.Keys {
		switch key {
		case m.Role:
			role, _ = o.Values[i].(string)
			if to, ok := m.Roles[role]; ok {
				role = to
			}
			o.Keys[i], o.Values[i] = "role", role
		case m.Content:
			o.Keys[i] = "content"
		}
	}
	if role == "" {
		return nil, millrace.Errorf(millrace.ErrBadSample, "message %d of field %q has no text in %q", number,
			m.Messages, m.Role)
	}
	return o, nil
}
