package sentencepiece

import (
	"bytes"
	"unicode/utf8"

	"millrace/text/tokenize/internal/trie"
)

// space stands for a space in the pieces, U+2581.
const space = "\u2581"

// findPlain finds the ASCII bytes that stay as they are before another ASCII byte.
func (m *Model) findPlain() {
	for b := range m.plain {
		m.plain[b] = b != ' ' && (m.rules == nil || m.rules.IsPlain(byte(b)))
		if m.user != nil {
			if _, begins := m.user.Step(trie.Root, byte(b)); begins {
				m.plain[b] = false
			}
		}
	}
}

// Normalize appends the normalised text to dst. It is UTF-8 for every text.
func (m *Model) Normalize(dst, text []byte) []byte {
	p := m.proto
	if p.shrinks {
		for len(text) > 0 {
			to, n := m.rewrite(text)
			if string(to) != " " {
				break
			}
			text = text[n:]
		}
	}
	if len(text) == 0 {
		return dst
	}
	start := len(dst)
	if p.prefixes && !p.suffix {
		dst = append(dst, m.space()...)
	}
	dst = m.rewriteAll(dst, text)
	if p.shrinks {
		for len(dst)-start >= len(m.space()) && bytes.HasSuffix(dst, []byte(m.space())) {
			dst = dst[:len(dst)-len(m.space())]
		}
	}
	if p.prefixes && p.suffix {
		dst = append(dst, m.space()...)
	}
	return dst
}

func (m *Model) space() string {
	if m.proto.escapes {
		return space
	}
	return " "
}

// rewriteAll appends the text with its characters rewritten. If spaces shrink, it leaves out spaces after a space.
func (m *Model) rewriteAll(dst, text []byte) []byte {
	afterSpace := m.proto.shrinks
	for i := 0; i < len(text); {
		run := i
		for run < len(text) && text[run] < utf8.RuneSelf && m.plain[text[run]] &&
			(run+1 == len(text) || text[run+1] < utf8.RuneSelf) {
			run++
		}
		if run > i {
			dst = append(dst, text[i:run]...)
			i, afterSpace = run, false
			continue
		}
		to, n := m.rewrite(text[i:])
		i += n
		for afterSpace && len(to) > 0 && to[0] == ' ' {
			to = to[1:]
		}
		if len(to) == 0 {
			continue
		}
		for _, b := range to {
			if b == ' ' {
				dst = append(dst, m.space()...)
			} else {
				dst = append(dst, b)
			}
		}
		afterSpace = m.proto.shrinks && to[len(to)-1] == ' '
	}
	return dst
}

// rewrite returns the characters to write for the first ones of text, and the length of the latter.
func (m *Model) rewrite(text []byte) (to []byte, n int) {
	if n := m.symbol(text); n > 0 {
		return text[:n], n
	}
	if m.rules != nil {
		if to, n := m.rules.Longest(text); n > 0 {
			return to, n
		}
	}
	char, n := utf8.DecodeRune(text)
	if char == utf8.RuneError && n == 1 {
		return []byte("\ufffd"), 1
	}
	return text[:n], n
}

// symbol returns the length of the longest user-defined symbol that begins text, or 0.
func (m *Model) symbol(text []byte) int {
	if m.user == nil {
		return 0
	}
	longest, node := 0, trie.Root
	for i, b := range text {
		next, ok := m.user.Step(node, b)
		if !ok {
			break
		}
		if node = next; m.user.Value(node) != trie.None {
			longest = i + 1
		}
	}
	return longest
}
