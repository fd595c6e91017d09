// Package trie finds the tokens that begin a text. It is a double array: a step along one byte is one access to memory.
//
// Source: J. Aoe, An Efficient Digital Search Algorithm by Using a Double-Array Structure (1989).
package trie

import (
	"cmp"
	"slices"
)

// None is the value of a node at which no key ends.
const None = ^uint32(0)

// Root is the node of the empty text.
const Root = int32(0)

// Trie is a set of keys with their values. It never changes and is safe for concurrent use.
type Trie struct {
	units []unit
}

// unit is a node. The child along byte b is unit base+b, if the check of that unit is this node.
type unit struct {
	base, check int32
	value       uint32
}

// free is the check of a unit that is no node.
const free = int32(-1)

// alphabet is the number of bytes that may follow a node.
const alphabet = 256

// New returns the trie of the keys. The value of a key is its index. Of equal keys, the last one counts. Empty keys are
// left out, and so are the keys for which keep, unless nil, returns false.
func New(keys [][]byte, keep func(i int) bool) *Trie {
	order := make([]uint32, 0, len(keys))
	for i, key := range keys {
		if len(key) > 0 && (keep == nil || keep(i)) {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Or(slices.Compare(keys[a], keys[b]), cmp.Compare(a, b))
	})
	b := builder{keys: keys, order: order}
	b.grow(2 * alphabet)
	b.units[Root].check = Root
	todo := []span{{node: Root, to: len(order)}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = b.place(todo[:len(todo)-1], s)
	}
	return &Trie{units: b.units}
}

// Step returns the node one byte further, or false if no key continues with the byte.
func (t *Trie) Step(node int32, b byte) (next int32, ok bool) {
	next = t.units[node].base + int32(b)
	return next, t.units[next].check == node && next != Root
}

// Value returns the value of the key that ends at a node, or None.
func (t *Trie) Value(node int32) uint32 { return t.units[node].value }

// Find returns the value of a key, or None.
func (t *Trie) Find(key []byte) uint32 {
	node := Root
	for _, b := range key {
		next, ok := t.Step(node, b)
		if !ok {
			return None
		}
		node = next
	}
	return t.Value(node)
}

// builder places the nodes of a trie.
type builder struct {
	keys  [][]byte
	order []uint32 // keys in their order
	units []unit
	first int // no unit before it is free
}

// span is the part of the order whose keys share the first bytes that lead to a node.
type span struct {
	node     int32
	from, to int
	depth    int
}

func (b *builder) grow(to int) {
	for len(b.units) < to {
		b.units = append(b.units, unit{check: free, value: None})
	}
}

// place sets the value of a node and finds room for its children. It appends their spans to todo.
func (b *builder) place(todo []span, s span) []span {
	for s.from < s.to && len(b.keys[b.order[s.from]]) == s.depth {
		b.units[s.node].value = b.order[s.from]
		s.from++
	}
	start := len(todo)
	var children [alphabet]byte
	for from := s.from; from < s.to; {
		label := b.keys[b.order[from]][s.depth]
		to := from + 1
		for to < s.to && b.keys[b.order[to]][s.depth] == label {
			to++
		}
		children[len(todo)-start] = label
		todo = append(todo, span{from: from, to: to, depth: s.depth + 1})
		from = to
	}
	labels := children[:len(todo)-start]
	if len(labels) == 0 {
		return todo
	}
	base := b.room(labels)
	b.units[s.node].base = base
	for i, label := range labels {
		child := base + int32(label)
		b.units[child].check = s.node
		todo[start+i].node = child
	}
	return todo
}

// tries bounds the search for room among the free units, so that the time for any keys is linear.
const tries = 128

// room returns a base for which the units of all labels are free.
func (b *builder) room(labels []byte) int32 {
	for b.first < len(b.units) && b.units[b.first].check != free {
		b.first++
	}
	left := tries
	for at := max(b.first, int(labels[0])+1); left > 0; at++ {
		b.grow(at + 2*alphabet)
		if b.units[at].check != free {
			continue
		}
		left--
		base := int32(at) - int32(labels[0])
		if b.fits(base, labels) {
			return base
		}
		if left == 0 {
			b.first = at // the units before it are hard to fill
		}
	}
	base := int32(len(b.units))
	b.grow(len(b.units) + 2*alphabet)
	return base
}

func (b *builder) fits(base int32, labels []byte) bool {
	for _, label := range labels {
		if b.units[base+int32(label)].check != free {
			return false
		}
	}
	return true
}
