package regex

import (
	"errors"
	"maps"
	"slices"
	"unicode"
	"unicode/utf8"
)

// maxClasses bounds the classes of an expression, so that those of a character are bits of a word.
const maxClasses = 64

const (
	blockBits = 7
	blockSize = 1 << blockBits
)

// classes has the classes of each character as bits. Characters with the same classes share an atom.
type classes struct {
	ascii  [utf8.RuneSelf]uint64
	index  [(unicode.MaxRune + 1) >> blockBits]uint16
	blocks [][blockSize]uint8 // atoms
	atoms  [256]uint64
}

func newClasses(sets []set) (*classes, error) {
	c := &classes{}
	flat, err := c.assign(sets)
	if err != nil {
		return nil, err
	}
	for r := range c.ascii {
		c.ascii[r] = c.atoms[flat[r]]
	}
	known := map[[blockSize]uint8]uint16{}
	for i := range c.index {
		block := [blockSize]uint8(flat[i*blockSize:])
		number, ok := known[block]
		if !ok {
			number = uint16(len(c.blocks))
			known[block] = number
			c.blocks = append(c.blocks, block)
		}
		c.index[i] = number
	}
	return c, nil
}

// assign sets the atoms of some sets. It returns the atom of each character.
func (c *classes) assign(sets []set) ([]uint8, error) {
	changes := map[rune]uint64{0: 0} // classes that begin or end at a character
	for class, s := range sets {
		for _, r := range s {
			changes[r.lo] ^= 1 << class
			changes[r.hi+1] ^= 1 << class
		}
	}
	flat := make([]uint8, unicode.MaxRune+1)
	atoms := map[uint64]uint8{}
	places := slices.Sorted(maps.Keys(changes))
	var mask uint64
	for i, at := range places {
		mask ^= changes[at]
		atom, ok := atoms[mask]
		if !ok {
			if len(atoms) == len(c.atoms) {
				return nil, errors.New("its classes of characters overlap in too many ways")
			}
			atom = uint8(len(atoms))
			atoms[mask], c.atoms[atom] = atom, mask
		}
		upTo := len(flat)
		if i+1 < len(places) {
			upTo = int(places[i+1])
		}
		for r := int(at); r < upTo; r++ {
			flat[r] = atom
		}
	}
	return flat, nil
}

// at returns the classes and the length of the character at t[i]. A byte that begins no character has those of U+FFFD.
func (c *classes) at(t []byte, i int) (mask uint64, size int) {
	if b := t[i]; b < utf8.RuneSelf {
		return c.ascii[b], 1
	}
	r, size := utf8.DecodeRune(t[i:])
	return c.atoms[c.blocks[c.index[r>>blockBits]][r%blockSize]], size
}

// match returns the end of the match of the steps from s on at t[i], or -1.
func (c *classes) match(s *step, t []byte, i int) int {
	for ; s != nil; s = s.next {
		switch s.kind {
		case repeat:
			if s.mode != possessive {
				return c.tries(s, t, i)
			}
			if i = c.run(s, t, i, s.max); i < 0 {
				return -1
			}
		case choice:
			return c.choice(s, t, i)
		case atomic:
			if i = c.match(s.body, t, i); i < 0 {
				return -1
			}
		case ahead:
			if (c.match(s.body, t, i) < 0) != s.negative {
				return -1
			}
		case end:
			if i < len(t) {
				return -1
			}
		case endOfLine:
			if i < len(t) && t[i] != '\n' {
				return -1
			}
		}
	}
	return i
}

// run returns the end of at least s.min and at most a number of characters of a class, or -1. No limit is negative.
func (c *classes) run(s *step, t []byte, i, limit int) int {
	n := 0
	for n != limit && i < len(t) {
		mask, size := c.at(t, i)
		if mask>>s.class&1 == 0 {
			break
		}
		i += size
		n++
	}
	if n < s.min {
		return -1
	}
	return i
}

// tries returns the end of the match of a repetition and the steps behind it, with the most characters if the
// repetition is greedy, and with the fewest if it is lazy.
func (c *classes) tries(s *step, t []byte, i int) int {
	least := c.run(s, t, i, s.min)
	if least < 0 {
		return -1
	}
	most := c.run(s, t, i, s.max)
	if s.mode == greedy {
		for ; ; most = back(t, most) {
			if end := c.match(s.next, t, most); end >= 0 || most <= least {
				return end
			}
		}
	}
	for {
		if end := c.match(s.next, t, least); end >= 0 || least >= most {
			return end
		}
		_, size := c.at(t, least)
		least += size
	}
}

// choice returns the end of the match of the first alternative that has one, together with the steps behind it.
func (c *classes) choice(s *step, t []byte, i int) int {
	var mask uint64
	if i < len(t) {
		mask, _ = c.at(t, i)
	}
	for _, b := range s.branches {
		if !b.always && mask>>b.class&1 == 0 {
			continue
		}
		if end := c.match(b.start, t, i); end >= 0 {
			return end
		}
	}
	return -1
}
