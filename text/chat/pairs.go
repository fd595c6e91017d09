package chat

import (
	"fmt"
	"unicode/utf8"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
	"millrace/sources/format/parts/fields"
	"millrace/text/chat/jinja"
)

// TooLong is the treatment of documents that are longer than a sequence.
type TooLong struct {
	Tokens   int  // of a sequence
	Truncate bool // keep the first Tokens
	Drop     bool // keep none; otherwise the document is cut into pieces like a text
}

// cut applies the treatment to the document behind dst[:first], and notes in the record if it was too long.
func (l TooLong) cut(dst []uint32, first int, r *sources.Record) []uint32 {
	r.TooLong = len(dst)-first > l.Tokens
	switch {
	case !r.TooLong:
	case l.Drop:
		return dst[:first]
	case l.Truncate:
		return dst[:first+l.Tokens]
	}
	return dst
}

// Pair describes documents of a prompt and a completion. The loss is on the completion.
type Pair struct {
	Prompt, Completion string // dotted paths, or templates of fields
	BOS, EOS           bool   // put in front of and behind the document, if the fields are texts
	TooLong            TooLong
	// Talk has the rendering of messages. A text is then a message: of the user in the prompt, of the assistant in the
	// completion. The whole completion is trained on, or the turns that Train names. nil: both fields are texts.
	Talk *Conversation
}

type pairMaker struct {
	Pair
	t         *encoder
	templates [2]*fields.Template // of the prompt and the completion; nil: a field
	names     []string            // of all fields
	talk      *conversationMaker
}

// NewPairMaker returns the maker of the documents of pairs. The error of a template says what to write.
func NewPairMaker(t Tokenizer, p Pair) (sources.Maker, error) {
	m := &pairMaker{Pair: p, t: newEncoder(t)}
	for i, text := range [2]string{p.Prompt, p.Completion} {
		if !fields.IsTemplate(text) {
			m.names = append(m.names, text)
			continue
		}
		var err error
		if m.templates[i], err = fields.ParseTemplate(text); err != nil {
			return nil, err
		}
		m.names = append(m.names, m.templates[i].Fields()...)
	}
	if p.Talk == nil {
		return m, nil
	}
	if p.Talk.Tools != "" {
		m.names = append(m.names, p.Talk.Tools)
	}
	talk, err := NewConversationMaker(t, *p.Talk)
	if err != nil {
		return nil, err
	}
	m.talk = talk.(*conversationMaker)
	return m, nil
}

// Fields implements sources.Maker.
func (m *pairMaker) Fields() []string { return m.names }

// Settings implements sources.Maker.
func (m *pairMaker) Settings() string {
	p := m.Pair
	settings := fmt.Sprintf("pair 1 {Prompt:%v Completion:%v BOS:%v EOS:%v TooLong:%+v}", p.Prompt, p.Completion, p.BOS,
		p.EOS, p.TooLong)
	if p.Talk != nil {
		settings += fmt.Sprintf(" rendered %q", p.Talk.settings())
	}
	return settings
}

// Document implements sources.Maker.
func (m *pairMaker) Document(dst []uint32, r *sources.Record, values []any, tell func()) ([]uint32, int64, error) {
	var both [2]any // of the prompt and the completion
	for i, template := range m.templates {
		n, err := 1, error(nil)
		if template == nil {
			both[i] = values[0]
		} else {
			n = len(template.Fields())
			both[i], err = template.Text(values[:n])
		}
		if err != nil {
			return dst, 0, err
		}
		values = values[n:]
	}
	first, bytes, err := len(dst), 0, error(nil)
	if m.talk != nil {
		dst, bytes, err = m.rendered(dst, both, values, tell)
	} else {
		dst, bytes, err = m.texts(dst, both, tell)
	}
	if err != nil {
		return dst[:first], 0, err
	}
	return m.TooLong.cut(dst, first, r), int64(bytes), nil
}

// texts appends the tokens of two texts. bytes is their length.
func (m *pairMaker) texts(dst []uint32, both [2]any, tell func()) (_ []uint32, bytes int, err error) {
	var p passage
	for i, v := range both {
		text, err := textOf(m.name(i), v)
		if err != nil {
			return dst, 0, err
		}
		for _, c := range text {
			p.add(c, false, i == 1)
		}
	}
	if id, ok := m.t.BOS(); ok && m.BOS {
		dst = append(dst, id|tokenid.Untrained)
	}
	dst = encode(dst, m.t, &p, tell)
	if id, ok := m.t.EOS(); ok && m.EOS {
		dst = append(dst, id)
	}
	return dst, len(p.text), nil
}

// name returns the field of the prompt, 0, or of the completion, 1.
func (m *pairMaker) name(i int) string { return [2]string{m.Prompt, m.Completion}[i] }

// rendered appends the tokens of a conversation whose last messages are the completion. As in TRL, the completion
// begins with the first token in which the whole differs from the prompt with the prompt for a generation. others has
// the tools, if there is a field of them.
func (m *pairMaker) rendered(
	dst []uint32, both [2]any, others []any, tell func(),
) (_ []uint32, bytes int, err error) {
	var parts [2]talk
	for i, role := range [2]string{"user", "assistant"} {
		if parts[i], err = m.talk.talkOf(m.name(i), both[i], role); err != nil {
			return dst, 0, err
		}
	}
	prompt := parts[0]
	if len(others) > 0 {
		if prompt.tools, err = m.talk.toolsOf(others[0]); err != nil {
			return dst, 0, err
		}
	}
	whole, err := m.talk.passage(prompt.with(parts[1]), len(prompt.messages))
	if err != nil {
		return dst, 0, err
	}
	asked, err := m.talk.render(prompt.messages, prompt.tools, true)
	if err != nil {
		return dst, 0, err
	}
	var p passage
	for i, r := range asked.Runes {
		p.add(r, asked.Origin[i] == 0, false)
	}
	first, before := len(dst), encode(nil, m.t, &p, tell)
	dst = encode(dst, m.t, whole, tell)
	ids := dst[first:]
	same := shared(len(ids), len(before), func(i int) bool { return (ids[i]^before[i])&^tokenid.Untrained == 0 })
	for i := range same {
		ids[i] |= tokenid.Untrained
	}
	return dst, len(whole.text), nil
}

// textOf returns the text of a field.
func textOf(name string, v any) (string, error) {
	if err := missing(name, v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		if utf8.Valid(v) {
			return string(v), nil
		}
		return "", millrace.Errorf(millrace.ErrBadSample, "field %q is not valid UTF-8", name)
	}
	cure := ""
	switch v.(type) {
	case []any, jinja.Object:
		cure = "; if it has messages, write `template: tokenizer`, or another template, beside it"
	}
	return "", millrace.Errorf(millrace.ErrBadSample, "field %q is %s, not a text%s", name, fields.KindOf(v), cure)
}
