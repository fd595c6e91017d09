package regex

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// class reads a class behind its bracket: characters, ranges, properties, classes within it, and && between sets.
func (p *parser) class() set {
	if p.depth++; p.depth > maxDepth {
		p.refuse("classes lie more than %d deep", maxDepth)
	}
	negative := p.accept("^")
	all := every()
	s := p.classItems()
	for p.accept("&&") {
		all = all.intersection(s)
		s = p.classItems()
	}
	s = all.intersection(s)
	if !p.accept("]") {
		p.refuse("a class lacks its ]")
	}
	p.depth--
	if negative {
		return s.complement()
	}
	return s
}

// classItems reads the union of the parts of a class up to && or its end.
func (p *parser) classItems() (s set) {
	for first := true; ; first = false {
		switch {
		case p.pos >= len(p.text):
			p.refuse("a class lacks its ]")
		case p.peek() == ']' && first:
			p.refuse("a ] at the beginning of a class cannot be followed")
		case p.peek() == ']', strings.HasPrefix(p.text[p.pos:], "&&"):
			return s
		case strings.HasPrefix(p.text[p.pos:], "[:"):
			p.refuse("a POSIX bracket cannot be followed")
		case p.accept("["):
			s = s.union(p.class())
			continue
		}
		for _, two := range []string{"--", "~~"} {
			if strings.HasPrefix(p.text[p.pos:], two) {
				p.refuse("%s in a class cannot be followed", two)
			}
		}
		s = s.union(p.classItem())
	}
}

// classItem reads a character, a range of them or a property.
func (p *parser) classItem() set {
	lo := p.next()
	if lo == '\\' {
		if s, ok := p.shorthand(true); ok {
			return s
		}
		lo = p.escape()
	}
	hi := lo
	if rest := p.text[p.pos:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
		p.pos++
		switch hi = p.next(); {
		case hi == '[':
			p.refuse("a range that ends in a class cannot be followed")
		case hi == '\\':
			if _, ok := p.shorthand(true); ok {
				p.refuse("a range that ends in a class cannot be followed")
			}
			hi = p.escape()
		}
		if hi < lo {
			p.refuse("a range ends before it begins")
		}
	}
	return p.folded(setOf(span{lo, hi}))
}

// shorthand reads the letter of a class behind a backslash, if it is one.
func (p *parser) shorthand(inClass bool) (s set, ok bool) {
	letter := p.peek()
	switch letter | 0x20 {
	case 's':
		s, _ = property("White_Space")
	case 'd':
		s, _ = property("Nd")
	case 'w':
		s = p.word(inClass)
	case 'p':
		p.pos++
		return p.property(letter == 'P'), true
	default:
		return nil, false
	}
	p.pos++
	if letter < 'a' {
		s = s.complement()
	}
	return s, true
}

// word returns \w. The engines differ in a few characters, and Oniguruma differs from itself within a class.
func (p *parser) word(inClass bool) (s set) {
	for _, name := range []string{"Alphabetic", "M", "Nd", "Pc"} {
		of, _ := property(name)
		s = s.union(of)
	}
	switch {
	case p.syntax == FancyRegex:
		return s.union(setOf(span{0x200c, 0x200d}))
	case inClass:
		return s
	}
	return s.union(setOf(span{0xb2, 0xb3}, span{0xb9, 0xb9}, span{0xbc, 0xbe}))
}

// property reads the name of a property behind \p or \P.
func (p *parser) property(negative bool) set {
	name := ""
	if p.accept("{") {
		length := strings.IndexByte(p.text[p.pos:], '}')
		if length < 0 {
			p.refuse("a property lacks its }")
		}
		name = p.text[p.pos : p.pos+length]
		if p.syntax == Oniguruma && strings.HasPrefix(name, "^") {
			name, negative = name[1:], !negative
		}
		if p.syntax == FancyRegex {
			for _, before := range []string{"Script=", "sc=", "General_Category=", "gc="} {
				name = strings.TrimPrefix(name, before)
			}
		}
		p.pos += length + 1
	} else if p.syntax == FancyRegex {
		name = string(p.next())
	}
	s, ok := property(name)
	if !ok {
		p.refuse("the property %q cannot be followed", name)
	}
	if p.fold {
		p.refuse("a property without case cannot be followed")
	}
	if negative {
		return s.complement()
	}
	return s
}

// escape reads a character behind a backslash.
func (p *parser) escape() rune {
	switch r := p.next(); {
	case r == 'n':
		return '\n'
	case r == 'r':
		return '\r'
	case r == 't':
		return '\t'
	case r == 'f':
		return '\f'
	case r == 'v':
		return '\v'
	case r == 'x' && p.accept("{"):
		length := strings.IndexByte(p.text[p.pos:], '}')
		return p.hex(length, 1)
	case r == 'x':
		return p.hex(2, 0)
	case r == 'u' && p.peek() != '{':
		return p.hex(4, 0)
	case r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)):
		p.refuse(`\%c cannot be followed`, r)
		return 0
	default:
		return r
	}
}

// hex reads a character by its number of some digits, then skips some bytes.
func (p *parser) hex(digits, skip int) rune {
	if digits <= 0 || len(p.text)-p.pos < digits+skip {
		p.refuse("a character's number is not complete")
	}
	n, err := strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32)
	if err != nil || n > unicode.MaxRune || p.syntax == Oniguruma && digits == 2 && n >= utf8.RuneSelf {
		p.refuse("%q is not the number of a character", p.text[p.pos:p.pos+digits])
	}
	p.pos += digits + skip
	return rune(n)
}
