package index

// table finds records of a log by their keys. It takes 8 bytes a slot, and at most 3 of 4 slots are used: 11 to 22
// bytes a record. A slot has, from the top, 40 bits of the record's offset in units of 8 bytes, 23 bits of the key's
// hash, and a bit that is set once the payload was compared with its checksum. An empty slot is 0: the log's head is at
// offset 0.
type table struct {
	slots []uint64
	used  int
}

const (
	slotChecked = 1
	slotHash    = 1<<24 - 2
	leastSlots  = 64
)

func slotOf(offset int64, hash uint64) uint64 { return uint64(offset/8)<<24 | hash>>39&slotHash }

func offsetOf(slot uint64) int64 { return int64(slot>>24) * 8 }

// find returns the slot of a key: one for which has returns true, or an empty one. The table has slots.
func (t *table) find(hash uint64, has func(offset int64) bool) *uint64 {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if *s == 0 || *s&slotHash == hash>>39&slotHash && has(offsetOf(*s)) {
			return s
		}
	}
}

// grow makes room for n more records. hashAt returns the hash of the key of the record at an offset.
func (t *table) grow(n int, hashAt func(offset int64) uint64) {
	size := max(len(t.slots), leastSlots)
	for (t.used+n)*4 > size*3 {
		size *= 2
	}
	if size == len(t.slots) {
		return
	}
	old := t.slots
	t.slots = make([]uint64, size)
	mask := uint64(size - 1)
	for _, s := range old {
		if s == 0 {
			continue
		}
		i := hashAt(offsetOf(s)) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = s
	}
}
