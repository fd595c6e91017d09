package regex

// tree is an expression or a part of it.
type tree struct {
	kind     kind
	chars    set     // of one
	parts    []*tree // of sequence and choice; the only one of the others
	min, max int     // of repeat; max is unbounded if negative
	mode     mode    // of repeat
	negative bool    // of ahead
}

type kind uint8

const (
	one      kind = iota // one character of a set
	sequence             // all parts, one after the other
	choice               // the first part that matches
	repeat
	atomic // without another try
	ahead  // lookahead
	end    // the end of the text
	endOfLine
)

// mode says which number of repetitions counts.
type mode uint8

const (
	greedy mode = iota
	lazy
	possessive
)

// skippable reports whether the tree can match the empty text, if its assertions hold.
func (t *tree) skippable() bool {
	switch t.kind {
	case one:
		return false
	case sequence:
		for _, p := range t.parts {
			if !p.skippable() {
				return false
			}
		}
		return true
	case choice:
		for _, p := range t.parts {
			if p.skippable() {
				return true
			}
		}
		return false
	case repeat:
		return t.min == 0 || t.parts[0].skippable()
	case atomic:
		return t.parts[0].skippable()
	}
	return true
}

// asserts reports whether the tree has a part that looks at the text behind it.
func (t *tree) asserts() bool {
	if t.kind == ahead || t.kind == end || t.kind == endOfLine {
		return true
	}
	for _, p := range t.parts {
		if p.asserts() {
			return true
		}
	}
	return false
}

// sure returns characters such that the tree matches every text that begins with one of them. It may lack some.
func (t *tree) sure() set {
	switch t.kind {
	case one:
		return t.chars
	case choice:
		var s set
		for _, p := range t.parts {
			s = s.union(p.sure())
		}
		return s
	case repeat:
		if t.min <= 1 {
			return t.parts[0].sure()
		}
	case atomic:
		return t.parts[0].sure()
	case sequence:
		return sureOf(t.parts)
	}
	return nil
}

// sureOf returns what one part is sure of if all others can be skipped. A part before it that takes its character for
// good cannot.
func sureOf(parts []*tree) (s set) {
	var taken set
	for i, p := range parts {
		if allSkippable(parts[i+1:]) {
			s = s.union(p.sure().minus(taken))
		}
		if !p.skippable() || p.asserts() {
			break
		}
		if p.kind != repeat || p.mode == possessive {
			taken = taken.union(p.beginnings())
		}
	}
	return s
}

func allSkippable(parts []*tree) bool {
	for _, p := range parts {
		if !p.skippable() || p.asserts() {
			return false
		}
	}
	return true
}

// choices returns the largest number of parts in a row that can match in several ways.
func (t *tree) choices() (n int) {
	for _, p := range t.parts {
		if t.kind == choice {
			n = max(n, p.choices())
		} else {
			n += p.choices()
		}
	}
	switch {
	case t.kind == choice:
		n++
	case t.kind == repeat && t.parts[0].kind != one:
		n = t.max*n + t.max - t.min
	case t.kind == repeat && t.mode != possessive && t.min != t.max:
		n++
	}
	return n
}

// beginnings returns the characters with which a match that is not empty begins, and perhaps others.
func (t *tree) beginnings() (s set) {
	switch t.kind {
	case one:
		return t.chars
	case ahead, end, endOfLine:
		return nil
	}
	for _, p := range t.parts {
		s = s.union(p.beginnings())
		if t.kind == sequence && !p.skippable() {
			break
		}
	}
	return s
}
