package chat

import (
	"slices"

	"millrace"
	"millrace/text/chat/jinja"
)

// turns returns the assistant's turns of a template without {% generation %} blocks, from a message on.
func (m *conversationMaker) turns(full jinja.Rendered, t talk, from int) (spans []span, err error) {
	for i, message := range t.messages {
		if role, _ := jinja.ObjectOf(message).Get("role"); i < from || role != "assistant" {
			continue
		}
		found := span{message: i}
		if why := m.goingOn(full, t, &found); why != "" && !m.written(full, t, &found) {
			return nil, millrace.Errorf(millrace.ErrBadSample, "the assistant's turn in message %d cannot be found: "+
				"%s, and no loop over the messages writes it in their order; use a template with {%% generation %%} "+
				"blocks, or train_on: all", i, why)
		}
		spans = append(spans, found)
	}
	return spans, nil
}

// goingOn finds a turn whose text continues the text before it. The turn begins at the end of the rendering of the
// messages before it with the prompt for a generation. It ends with its last special token, within the part of the
// rendering that equals the rendering of the messages up to it. why says why the turn is not of this kind.
func (m *conversationMaker) goingOn(full jinja.Rendered, t talk, found *span) (why string) {
	i := found.message
	before, err := m.render(t.messages[:i], t.tools, true)
	if err != nil {
		return "the messages before it have no rendering of their own: " + err.Error()
	}
	until, err := m.render(t.messages[:i+1], t.tools, false)
	if err != nil {
		return "the messages up to it have no rendering of their own: " + err.Error()
	}
	if !hasPrefix(full.Runes, before.Runes) {
		return "the text before its turn depends on what comes after"
	}
	if !hasPrefix(until.Runes, before.Runes) {
		return "its turn does not go on from the prompt for a generation"
	}
	origin, start := uint32(firstMessage+i), len(before.Runes)
	end, tail := max(start, behind(full, origin)), until.Runes[max(start, behind(until, origin)):]
	common := shared(len(tail), len(full.Runes)-end, func(n int) bool {
		return tail[n] == full.Runes[end+n] && full.Origin[end+n] == 0
	})
	found.Span = jinja.Span{From: start, To: end + m.ending(tail[:common])}
	found.leaveOthers(full, until.Runes[start:])
	return ""
}

// leaveOthers leaves the results of tools out of a turn, which some templates write into it. They begin where the turn
// differs from alone, its text in the rendering that ends with it. They end in front of the message's own text, or with
// the turn.
func (s *span) leaveOthers(full jinja.Rendered, alone []rune) {
	origin := uint32(firstMessage + s.message)
	first, last := -1, -1
	for at := s.From; at < len(full.Runes); at++ {
		if full.Turn[at] == origin && full.Origin[at] >= firstMessage && full.Origin[at] != origin {
			if last = at; first < 0 {
				first = at
			}
		}
	}
	if first < 0 {
		return
	}
	turn := full.Runes[s.From:first]
	length := sharedBeginning(turn, alone)
	if !slices.Contains(full.Origin[s.From:s.From+length], origin) { // alone may begin with reasoning
		for at := range alone {
			length = max(length, sharedBeginning(turn, alone[at:]))
		}
	}
	s.others.From = s.From + length
	s.others.To = last + 1
	for s.others.To < s.To && full.Origin[s.others.To] != origin {
		s.others.To++
	}
	if s.others.To >= s.To {
		s.To = s.others.From
	}
}

// sharedBeginning returns the length of the beginning that two texts share.
func sharedBeginning(a, b []rune) int {
	return shared(len(a), len(b), func(i int) bool { return a[i] == b[i] })
}

func hasPrefix(text, prefix []rune) bool {
	return len(prefix) <= len(text) && slices.Equal(prefix, text[:len(prefix)])
}

// written finds a turn by the loop of the template that wrote it, if the turns of all messages are in their order.
// Templates leave the reasoning out of earlier turns, so the text before a turn is not always that of a generation. The
// turn may begin with a part of the prompt for a generation; that part is left out. It ends with its last special
// token.
func (m *conversationMaker) written(full jinja.Rendered, t talk, found *span) bool {
	origin := uint32(firstMessage + found.message)
	from := slices.Index(full.Turn, origin)
	if from < 0 {
		return false
	}
	to := from
	for to < len(full.Turn) && full.Turn[to] == origin {
		to++
	}
	for at, turn := range full.Turn {
		if turn >= firstMessage && (at < from && turn > origin || at >= to && turn <= origin) {
			return false
		}
	}
	prompt := m.prompt(full, t, found.message)
	start := from
	for n := range prompt {
		if start == to || full.Origin[start] != 0 || full.Runes[start] != prompt[n] {
			break
		}
		start++
	}
	end := start
	for at := start; at < to; at++ {
		if full.Origin[at] != 0 {
			end = at + 1
		}
	}
	found.Span = jinja.Span{From: start, To: end + m.ending(full.Runes[end:to])}
	var alone []rune // unknown: then no text before others' text is trained on
	if until, err := m.render(t.messages[:found.message+1], t.tools, false); err == nil {
		begin := slices.Index(until.Turn, origin)
		if header := begin + start - from; begin >= 0 && header <= len(until.Runes) {
			alone = until.Runes[header:]
		}
	}
	found.leaveOthers(full, alone)
	return true
}

// prompt returns the prompt for a generation in front of a message: the text that it adds to the messages before, or to
// the whole conversation. It is empty if the template has none.
func (m *conversationMaker) prompt(full jinja.Rendered, t talk, i int) []rune {
	without, failed := m.render(t.messages[:i], t.tools, false)
	with, err := m.render(t.messages[:i], t.tools, true)
	if failed != nil || err != nil || !hasPrefix(with.Runes, without.Runes) {
		without = full
		if with, err = m.render(t.messages, t.tools, true); err != nil || !hasPrefix(with.Runes, full.Runes) {
			return nil
		}
	}
	return with.Runes[len(without.Runes):]
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
