package chat

import (
	"slices"

	"millrace"
	"millrace/sources/chat/jinja"
)

// firstMessage is the origin of the first message's characters. Those of tools have the origin before it.
const firstMessage = 2

func (m *conversationMaker) render(messages []any, tools any, prompt bool) (jinja.Rendered, error) {
	values := []jinja.Value{
		{Name: "messages", Value: messages, Origin: firstMessage, Count: true},
		{Name: "tools", Value: tools, Origin: firstMessage - 1},
		{Name: "documents"}, {Name: "add_generation_prompt", Value: prompt},
	}
	if m.Conversation.BOS != "" {
		values = append(values, jinja.Value{Name: "bos_token", Value: m.Conversation.BOS})
	}
	if m.Conversation.EOS != "" {
		values = append(values, jinja.Value{Name: "eos_token", Value: m.Conversation.EOS})
	}
	return m.template.Render(values)
}

// passage renders a conversation and marks its trained characters. Of the turns, those from message number `from` on
// are trained on.
func (m *conversationMaker) passage(messages []any, tools any, from int) (*passage, error) {
	full, err := m.render(messages, tools, false)
	if err != nil {
		return nil, err
	}
	spans := []jinja.Span{{From: 0, To: len(full.Runes)}}
	if m.Train != Everything {
		spans = since(full, full.Generated, uint32(firstMessage+from))
		if !m.template.HasGeneration {
			if spans, err = m.turns(full, messages, tools, from); err != nil {
				return nil, err
			}
		}
		if n := len(spans); n > 0 && m.Train == LastAssistant {
			spans = spans[n-1:]
		}
	}
	p := &passage{}
	for i, r := range full.Runes {
		for len(spans) > 0 && i >= spans[0].To {
			spans = spans[1:]
		}
		p.add(r, full.Origin[i] == 0, len(spans) > 0 && i >= spans[0].From)
	}
	return p, nil
}

// since returns the spans that have a character of an origin from the first one on, or that follow such a character.
func since(full jinja.Rendered, spans []jinja.Span, first uint32) []jinja.Span {
	if first == firstMessage {
		return spans
	}
	begin := slices.IndexFunc(full.Origin, func(origin uint32) bool { return origin >= first })
	return slices.DeleteFunc(slices.Clone(spans), func(s jinja.Span) bool { return begin < 0 || s.To <= begin })
}

// turns returns the assistant's turns of a template without {% generation %} blocks. A turn begins where the rendering
// of the messages before it ends, with the prompt for a generation. It ends with the end of the turn's last special
// token, as far as the rendering goes on as that of the messages up to it.
func (m *conversationMaker) turns(
	full jinja.Rendered, messages []any, tools any, from int,
) (spans []jinja.Span, err error) {
	for i, message := range messages {
		if role, _ := jinja.ObjectOf(message).Get("role"); i < from || role != "assistant" {
			continue
		}
		before, err := m.render(messages[:i], tools, true)
		if err != nil {
			return nil, err
		}
		until, err := m.render(messages[:i+1], tools, false)
		if err != nil {
			return nil, err
		}
		origin, start := uint32(firstMessage+i), len(before.Runes)
		if start > len(full.Runes) || !slices.Equal(before.Runes, full.Runes[:start]) {
			return nil, m.ambiguous(i, "the text before its turn depends on what comes after")
		}
		if start > len(until.Runes) || !slices.Equal(before.Runes, until.Runes[:start]) {
			return nil, m.ambiguous(i, "its turn does not go on from the prompt for a generation")
		}
		end, tail := max(start, behind(full, origin)), until.Runes[max(start, behind(until, origin)):]
		common := 0
		for common < len(tail) && end+common < len(full.Runes) && tail[common] == full.Runes[end+common] &&
			full.Origin[end+common] == 0 {
			common++
		}
		spans = append(spans, jinja.Span{From: start, To: end + m.ending(tail[:common])})
	}
	return spans, nil
}

func (m *conversationMaker) ambiguous(message int, why string) error {
	return millrace.Errorf(millrace.ErrBadSample, "the assistant's turn in message %d cannot be found: %s; "+
		"use a template with {%% generation %%} blocks, or train_on: all", message, why)
}

// behind returns the place behind the last character of an origin, 0 if there is none.
func behind(r jinja.Rendered, origin uint32) int {
	for i := len(r.Origin); i > 0; i-- {
		if r.Origin[i-1] == origin {
			return i
		}
	}
	return 0
}

// ending returns the characters of a turn's end that belong to it: up to its last special token, or all if there is
// none.
func (m *conversationMaker) ending(tail []rune) int {
	text, end, has := []byte(string(tail)), 0, false
	for at := 0; at < len(text); {
		if _, n, ok := m.t.specialAt(text[at:]); ok {
			at += n
			end, has = len([]rune(string(text[:at]))), true
		} else {
			at++
		}
	}
	if !has {
		return len(tail)
	}
	return end
}
