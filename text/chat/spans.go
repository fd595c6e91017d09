package chat

import (
	"slices"

	"millrace"
	"millrace/text/chat/jinja"
)

// The origins of characters: of the tools, and of the first message and those behind it.
const (
	fromTools = 1 + iota
	firstMessage
)

// templateOf returns the template of a conversation with these tools.
func (m *conversationMaker) templateOf(tools any) *jinja.Template {
	if tools != nil {
		return m.withTools
	}
	return m.plain
}

func (m *conversationMaker) render(messages []any, tools any, prompt bool) (jinja.Rendered, error) {
	values := append(m.constants[:len(m.constants):len(m.constants)],
		jinja.Value{Name: "messages", Value: messages, Origin: firstMessage, Count: true},
		jinja.Value{Name: "tools", Value: tools, Origin: fromTools},
		jinja.Value{Name: "documents"}, jinja.Value{Name: "add_generation_prompt", Value: prompt})
	return m.templateOf(tools).Render(values)
}

// passage renders a conversation and marks its trained characters. Of the turns, those from message number `from` on
// are trained on.
func (m *conversationMaker) passage(t talk, from int) (*passage, error) {
	full, err := m.render(t.messages, t.tools, false)
	if err != nil {
		return nil, err
	}
	spans, err := m.spans(full, t, from)
	if err != nil {
		return nil, err
	}
	trained := make([]bool, len(full.Runes))
	for _, s := range spans {
		for i := s.From; i < s.To; i++ {
			trained[i] = i < s.others.From || i >= s.others.To
		}
	}
	if slices.Contains(t.left, true) {
		if err := leaveOut(trained, spans, full, t.left); err != nil {
			return nil, err
		}
	}
	p := &passage{}
	for i, r := range full.Runes {
		p.add(r, full.Origin[i] == 0, trained[i])
	}
	return p, nil
}

// span is a run of trained characters. message is the message that it is of, else each, or block.
// others are characters in it that are of other messages.
type span struct {
	jinja.Span
	message int
	others  jinja.Span
}

const (
	each  = -1 // each character is of its own message, or of none
	block = -2 // it is a {% generation %} block: characters of no message are of the message beside them
)

// spans returns the characters that train_on names, without regard to marks in the messages.
func (m *conversationMaker) spans(full jinja.Rendered, t talk, from int) (spans []span, err error) {
	switch {
	case m.Train == Everything:
		return []span{{Span: jinja.Span{From: 0, To: len(full.Runes)}, message: each}}, nil
	case m.templateOf(t.tools).HasGeneration:
		for _, s := range since(full, full.Generated, from) {
			spans = append(spans, span{Span: s, message: block})
		}
	default:
		if spans, err = m.turns(full, t, from); err != nil {
			return nil, err
		}
	}
	if n := len(spans); n > 0 && m.Train == LastAssistant {
		spans = spans[n-1:]
	}
	return spans, nil
}

// leaveOut takes the marks from the characters of messages that are left out.
func leaveOut(trained []bool, spans []span, full jinja.Rendered, left []bool) error {
	for _, s := range spans {
		message := s.message
		for i := s.From; i < s.To && message == block; i++ { // the first one that is known
			if own := messageOf(full, i); own != each {
				message = own
			}
		}
		if message == block && s.From < s.To {
			return millrace.Errorf(millrace.ErrBadSample, "a message has weight 0 or train false, and the template "+
				"does not show which text of a {%% generation %%} block is of which message; leave these keys out")
		}
		for i := s.From; i < s.To; i++ {
			if own := messageOf(full, i); s.message == each || s.message == block && own != each {
				message = own
			}
			trained[i] = trained[i] && (message == each || !left[message])
		}
	}
	return nil
}

// messageOf returns the message of a character, each if it is of none.
func messageOf(full jinja.Rendered, i int) int {
	for _, origin := range []uint32{full.Turn[i], full.Origin[i]} {
		if origin >= firstMessage {
			return int(origin - firstMessage)
		}
	}
	return each
}

// since returns the spans that have a character of a message from the first one on, or that follow such a character.
func since(full jinja.Rendered, spans []jinja.Span, first int) []jinja.Span {
	if first == 0 {
		return spans
	}
	begin := 0
	for begin < len(full.Runes) && messageOf(full, begin) < first {
		begin++
	}
	return slices.DeleteFunc(slices.Clone(spans), func(s jinja.Span) bool { return s.To <= begin })
}
