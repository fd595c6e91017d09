package pipeline

import (
	"unicode/utf8"

	"millrace/text/tokenize/internal/chars"
)

// runs divides a text into runs of characters of one kind.
type runs func(r rune) run

// run is the kind of a character's run.
type run uint8

const (
	plain run = iota // characters that a splitter does not look for
	other            // those that it looks for
	alone            // each is a part of its own
	left             // they are left out
)

// pick returns the run of a character of the first set that it is in.
func pick(of, first chars.Set, inFirst run, second chars.Set, inSecond run) run {
	switch {
	case of&first != 0:
		return inFirst
	case of&second != 0:
		return inSecond
	}
	return plain
}

// Split implements Splitter.
func (of runs) Split(text []byte, _ bool, _ *Scratch, do func(part []byte)) {
	start, last := 0, left
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		kind := of(r)
		if kind != last || kind == alone {
			if last != left && start < i {
				do(text[start:i])
			}
			start, last = i, kind
		}
		i += n
	}
	if last != left && start < len(text) {
		do(text[start:])
	}
}

// Sequence divides by one splitter after the other, each the parts of the one before. A splitter behind one that writes
// parts anew takes none of them for the beginning of the document.
type Sequence []Splitter

// Split implements Splitter.
func (list Sequence) Split(text []byte, first bool, s *Scratch, do func(part []byte)) {
	if len(list) == 0 {
		do(text)
		return
	}
	for len(s.rooms) <= len(list) {
		s.rooms = append(s.rooms, nil)
	}
	s.level = len(list)
	list[0].Split(text, first, s, func(part []byte) {
		list[1:].Split(part, first && len(part) > 0 && &part[0] == &text[0], s, do)
	})
}
