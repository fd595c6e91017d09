// Package pairs finds the token that two neighbouring tokens merge into.
package pairs

import (
	"math/bits"
	"slices"

	"millrace/text/tokenize/internal/shared"
	"millrace/text/tokenize/internal/vocab"
)

// IDBits is enough for every id, and NoID is none. If it were not so, the last line would not compile.
const (
	IDBits = 21
	NoID   = 1<<IDBits - 1 // merges with nothing
	None   = ^uint32(0)    // stands for the token of a pair that does not merge
	_      = uint(NoID - vocab.MaxTokens)
)

// Table has the merges of a vocabulary. It is a perfect hash table: a pair can be in one
// slot alone, so a search has no loop and no branch. A slot packs left, right and merged token in 21 bits each
// under the highest bit. Zero is empty.
//
// Pairs with the same highest bits of their hash are a bucket. The pilot of a bucket sends its pairs to slots that are
// free. See "PTHash: Revisiting FCH Minimal Perfect Hashing" (Pibiri and Trani, 2021).
type Table struct {
	slots      []uint64
	pilots     []uint8
	filter     []uint64 // a bit for each pair, by more bits of its hash. Most pairs do not merge: they need no slot.
	shift      uint     // of slots
	pilotShift uint
}

const (
	spread      = 0x9e3779b97f4a7c15
	pilotSpread = 0xd6e8feb86659fd93

	bucketPairs = 3 // of a bucket on average, at most
	filterBits  = 3 // a slot has 2^filterBits bits of the filter
)

func pack(left, right uint32) uint64 {
	return 1<<(2*IDBits) | uint64(left)<<IDBits | uint64(right)
}

// slot returns the slot of a pair's hash in a bucket with a pilot.
func (t *Table) slot(hash, pilot uint64) uint64 {
	return hash * (pilotSpread + 2*pilot) >> (t.shift % 64)
}

// Find returns the token that two tokens merge into, or None.
func (t *Table) Find(left, right uint32) uint32 {
	pair := pack(left, right)
	hash := pair * spread
	bit := hash >> ((t.shift - filterBits) % 64)
	at := t.slot(hash, uint64(t.pilots[hash>>(t.pilotShift%64)])) & -(t.filter[bit/64] >> (bit % 64) & 1)
	slot := t.slots[at]
	id := uint32(slot) & (1<<IDBits - 1)
	if slot>>IDBits != pair {
		id = None
	}
	return id
}

// Tables returns the tables that never change.
func (t *Table) Tables() []shared.Table {
	return []shared.Table{shared.Of(&t.slots), shared.Of(&t.pilots), shared.Of(&t.filter)}
}

// New returns the table of a vocabulary's merges. At most four of five slots are in use.
func New(v *vocab.Vocabulary) *Table {
	var merges []uint64 // as slots have them
	for id := range uint32(v.Len()) {
		if left, right, ok := v.Pair(id); ok {
			merges = append(merges, pack(left, right)<<IDBits|uint64(id))
		}
	}
	for slotBits := max(uint(bits.Len(uint(len(merges)*5/4))), 1); ; slotBits++ {
		pilotBits := max(uint(bits.Len(uint(len(merges)/bucketPairs))), 1)
		t := &Table{shift: 64 - slotBits, pilotShift: 64 - pilotBits}
		t.slots = make([]uint64, 1<<slotBits)
		t.pilots = make([]uint8, 1<<pilotBits)
		t.filter = make([]uint64, (1<<slotBits<<filterBits+63)/64)
		if t.fill(merges) {
			return t
		}
	}
}

// fill finds the pilots, those of the largest buckets first. It returns false if a bucket has none.
func (t *Table) fill(merges []uint64) bool {
	first := make([]uint32, len(t.pilots)+1) // merge of each bucket
	for _, merge := range merges {
		hash := merge >> IDBits * spread
		bit := hash >> (t.shift - filterBits)
		t.filter[bit/64] |= 1 << (bit % 64)
		first[hash>>t.pilotShift+1]++
	}
	largest := uint32(0)
	for i := range t.pilots {
		largest = max(largest, first[i+1])
		first[i+1] += first[i]
	}
	ordered := make([]uint64, len(merges))
	next := slices.Clone(first)
	for _, merge := range merges {
		at := &next[merge>>IDBits*spread>>t.pilotShift]
		ordered[*at] = merge
		*at++
	}
	for size := largest; size > 0; size-- {
		for i := range t.pilots {
			if first[i+1]-first[i] == size && !t.place(i, ordered[first[i]:first[i+1]]) {
				return false
			}
		}
	}
	return true
}

// place finds the pilot of a bucket and fills its slots.
func (t *Table) place(bucket int, merges []uint64) bool {
	for pilot := range 1 << 8 {
		placed := 0
		for ; placed < len(merges); placed++ {
			slot := &t.slots[t.slot(merges[placed]>>IDBits*spread, uint64(pilot))]
			if *slot != 0 {
				break
			}
			*slot = merges[placed]
		}
		if placed == len(merges) {
			t.pilots[bucket] = uint8(pilot)
			return true
		}
		for _, merge := range merges[:placed] {
			t.slots[t.slot(merge>>IDBits*spread, uint64(pilot))] = 0
		}
	}
	return false
}
