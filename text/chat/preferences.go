package chat

import (
	"fmt"
	"reflect"
	"unicode"

	"millrace"
	"millrace/internal/tokenid"
	"millrace/sources"
)

// Preference describes documents of a prompt with a chosen and a rejected answer. A document is two segments: the
// prompt with the chosen answer, then the prompt with the rejected one. The first token of each has the bits
// tokenid.Begin. The loss is on the answers.
type Preference struct {
	Prompt           string // dotted path; empty: the prompt is the beginning that both answers share
	Chosen, Rejected string // dotted paths
	BOS, EOS         bool   // put in front of and behind each segment, if the fields are texts
	TooLong          TooLong
	// Talk has the rendering of messages. A text is then a message: of the user in the prompt, of the assistant in an
	// answer. nil: all fields are texts.
	Talk *Conversation
}

type preferenceMaker struct {
	Preference
	t    *encoder
	talk *conversationMaker
}

// NewPreferenceMaker returns the maker of the documents of preference pairs. A template that cannot be parsed is an
// error that wraps millrace.ErrInvalid.
func NewPreferenceMaker(t Tokenizer, p Preference) (sources.Maker, error) {
	m := &preferenceMaker{Preference: p, t: newEncoder(t)}
	if p.Talk == nil {
		return m, nil
	}
	talk, err := NewConversationMaker(t, *p.Talk)
	if err != nil {
		return nil, err
	}
	m.talk = talk.(*conversationMaker)
	return m, nil
}

// Fields implements sources.Maker.
func (m *preferenceMaker) Fields() []string {
	if m.Prompt == "" {
		return []string{m.Chosen, m.Rejected}
	}
	return []string{m.Chosen, m.Rejected, m.Prompt}
}

// Settings implements sources.Maker.
func (m *preferenceMaker) Settings() string {
	p, talk := m.Preference, ""
	if p.Talk != nil {
		talk = p.Talk.settings()
	}
	p.Talk = nil
	return fmt.Sprintf("preference 1 %+v %q", p, talk)
}

// Document implements sources.Maker.
func (m *preferenceMaker) Document(
	dst []uint32, r *sources.Record, values []any, tell func(),
) ([]uint32, int64, error) {
	make := m.texts
	if m.talk != nil {
		make = m.talks
	}
	both, err := make(values)
	if err != nil {
		return dst, 0, err
	}
	first, bytes := len(dst), int64(0)
	var lengths [2]int
	for i, p := range both {
		at := len(dst)
		if id, ok := m.t.BOS(); ok && m.BOS && m.talk == nil {
			dst = append(dst, id|tokenid.Untrained)
		}
		dst = encode(dst, m.t, p, tell)
		if id, ok := m.t.EOS(); ok && m.EOS && m.talk == nil {
			dst = append(dst, id)
		}
		if !isTrained(dst[at:]) {
			return dst[:first], 0, millrace.Errorf(millrace.ErrBadSample,
				"field %q has no token to train on behind the prompt's first token", m.Fields()[i])
		}
		lengths[i], bytes = len(dst)-at, bytes+int64(len(p.text))
	}
	dst = m.cut(dst, first, lengths[0], r)
	return dst, bytes, nil
}

// isTrained reports whether a segment has a label: a trained token behind its first one.
func isTrained(ids []uint32) bool {
	for i, id := range ids {
		if i > 0 && id&tokenid.Untrained == 0 {
			return true
		}
	}
	return false
}

// cut applies the treatment of long documents to the pair after dst[:first], whose first segment has `chosen` tokens,
// and marks where its segments begin. A segment keeps its beginning: half of the sequence, or the room that the other
// one leaves. A pair of which an answer is cut off is dropped.
func (m *preferenceMaker) cut(dst []uint32, first, chosen int, r *sources.Record) []uint32 {
	rejected := len(dst) - first - chosen
	if r.TooLong = chosen+rejected > m.TooLong.Tokens; r.TooLong {
		if m.TooLong.Drop {
			return dst[:first]
		}
		half := m.TooLong.Tokens / 2
		a := min(chosen, max(half, m.TooLong.Tokens-rejected))
		b := min(rejected, m.TooLong.Tokens-a)
		if !isTrained(dst[first:first+a]) || !isTrained(dst[first+chosen:first+chosen+b]) {
			return dst[:first]
		}
		copy(dst[first+a:], dst[first+chosen:first+chosen+b])
		dst, chosen = dst[:first+a+b], a
	}
	dst[first] |= tokenid.Begin
	dst[first+chosen] |= tokenid.Begin
	return dst
}

// texts returns the passages of two texts and their prompt.
func (m *preferenceMaker) texts(values []any) (both [2]*passage, err error) {
	var texts [3]string
	for i, v := range values {
		if texts[i], err = textOf(m.Fields()[i], v); err != nil {
			return both, err
		}
	}
	answers, prompt := [2][]rune{[]rune(texts[0]), []rune(texts[1])}, []rune(texts[2])
	if m.Prompt == "" {
		n := sharedBeginning(answers[0], answers[1])
		for n > 0 && unicode.IsSpace(answers[0][n-1]) { // white space begins a word of the answer
			n--
		}
		prompt, answers[0], answers[1] = answers[0][:n], answers[0][n:], answers[1][n:]
	}
	for i := range both {
		both[i] = &passage{}
		for _, c := range prompt {
			both[i].add(c, false, false)
		}
		for _, c := range answers[i] {
			both[i].add(c, false, true)
		}
	}
	return both, nil
}

// shared returns the length of the beginning that two sequences share.
func shared(a, b int, isSame func(i int) bool) (n int) {
	for n < min(a, b) && isSame(n) {
		n++
	}
	return n
}

// talks returns the passages of two answers of messages and their prompt.
func (m *preferenceMaker) talks(values []any) (both [2]*passage, err error) {
	var parts [3]talk
	for i, v := range values {
		role := "assistant"
		if i == 2 {
			role = "user"
		}
		if parts[i], err = m.talk.talkOf(m.Fields()[i], v, role); err != nil {
			return both, err
		}
	}
	prompt := parts[2]
	if m.Prompt == "" {
		a, b := parts[0].messages, parts[1].messages
		n := shared(len(a), len(b), func(i int) bool { return reflect.DeepEqual(a[i], b[i]) })
		prompt, parts[0], parts[1] = parts[0].until(n), parts[0].since(n), parts[1].since(n)
	}
	for i := range both {
		if both[i], err = m.talk.passage(prompt.with(parts[i]), len(prompt.messages)); err != nil {
			return both, err
		}
	}
	return both, nil
}
