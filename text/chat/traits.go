package chat

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/sources"
	"millrace/text/chat/jinja"
)

// nothing is the error of a document without a label.
func nothing(why string, with ...any) error {
	return millrace.Errorf(millrace.ErrBadSample, "no token is trained on: "+why, with...)
}

// MakerTraits implements sources.Maker. A conversation needs no tools.
func (m *conversationMaker) MakerTraits() sources.MakerTraits {
	return sources.MakerTraits{
		Revision: revision, MayLack: m.Fields()[1:], LimitsLength: true, Untrained: m.untrained,
	}
}

// untrained is sources.MakerTraits.Untrained. The error names the roles of the conversation, and those that are trained
// on.
func (m *conversationMaker) untrained(r *sources.Record, values []any) error {
	return m.nothing(r, m.Messages, values[0])
}

func (m *conversationMaker) nothing(r *sources.Record, field string, value any) error {
	found := m.rolesOf(field, value)
	switch {
	case m.Train == Everything:
		return nothing("the conversation in field %q has one token", field)
	case len(found) == 0:
		return nothing("field %q has no message", field)
	case m.plain.HasGeneration && slices.Contains(found, assistantRole):
		return m.cutOff(r, nothing("the messages in field %q have the roles %s, and the chat template has no "+
			"text of them in a {%% generation %%} block", field, listed(found)))
	case slices.Contains(found, assistantRole):
		return m.cutOff(r, nothing("the messages in field %q have the roles %s, and the chat template writes no text "+
			"behind a turn of %q (train_on: %s)", field, listed(found), assistantRole, m.Train))
	}
	return nothing("the messages in field %q have the roles %s, and train_on: %s trains on %q alone; name the "+
		"role with the answers, as `roles: {%s: %s}`", field, listed(found), m.Train, assistantRole,
		found[len(found)-1], assistantRole)
}

// assistantRole is the role whose turns are trained on.
const assistantRole = "assistant"

// cutOff returns the error of a document that too_long has cut before its first trained token, else another one.
func (m *conversationMaker) cutOff(r *sources.Record, otherwise error) error {
	if !r.TooLong || !m.TooLong.Truncate {
		return otherwise
	}
	return nothing("too_long: truncate keeps %d tokens, and the first turn of %q is behind them", m.TooLong.Tokens,
		assistantRole)
}

// rolesOf returns the roles of a list of messages, each once, with the names that templates see.
func (m *conversationMaker) rolesOf(field string, value any) (roles []string) {
	messages, err := listOf(field, value)
	if err != nil {
		return nil
	}
	for _, one := range messages {
		o := jinja.ObjectOf(one)
		for i, key := range o.Keys {
			role, isText := o.Values[i].(string)
			if key != m.Role || !isText {
				continue
			}
			if to, ok := m.Roles[role]; ok {
				role = to
			}
			if !slices.Contains(roles, role) {
				roles = append(roles, role)
			}
		}
	}
	return roles
}

// listed writes names for people.
func listed(names []string) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", name)
	}
	return b.String()
}

// MakerTraits implements sources.Maker.
func (m *pairMaker) MakerTraits() sources.MakerTraits {
	return sources.MakerTraits{LimitsLength: true, Untrained: m.untrained}
}

// untrained is sources.MakerTraits.Untrained.
func (m *pairMaker) untrained(r *sources.Record, _ []any) error {
	if r.TooLong && m.TooLong.Truncate {
		return nothing("too_long: truncate keeps %d tokens, and the completion is behind them", m.TooLong.Tokens)
	}
	return nothing("the completion %q is empty", m.Completion)
}

// MakerTraits implements sources.Maker. Only messages are rendered, so texts have no revision.
func (m *preferenceMaker) MakerTraits() sources.MakerTraits {
	t := sources.MakerTraits{LimitsLength: true, Untrained: m.untrained}
	if m.talk != nil {
		t.Revision = revision
	}
	return t
}

// untrained is sources.MakerTraits.Untrained. Document refuses an answer without a label itself, and says more.
func (m *preferenceMaker) untrained(*sources.Record, []any) error {
	return nothing("the answers in %q and %q have no token behind their prompts", m.Chosen, m.Rejected)
}
