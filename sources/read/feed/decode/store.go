package decode

// SlabBytes is the size of a slab of block text. It is small, because the text of a small block takes a whole slab, and
// a process with many sources holds many small blocks.
const SlabBytes = 128 << 10

// heldSlabs is the text that stays in memory, in slabs. Longer ones go to a file, slab by slab.
const heldSlabs = 2

// Slabs keeps slabs for reuse; its capacity bounds them, and no budget counts them. A nil Slabs keeps none. It is safe
// for concurrent use.
type Slabs chan []byte

func (s Slabs) take() []byte {
	select {
	case slab := <-s:
		return slab
	default:
		return make([]byte, 0, SlabBytes)
	}
}

// recycle takes a slab that is not used any more.
func (s Slabs) recycle(slab []byte) {
	select {
	case s <- slab[:0]:
	default:
	}
}

// Store holds texts: in slabs, and in a file. All feeds of a process share both.
type Store struct {
	Slabs Slabs
	File  *File // nil: texts stay in memory
}

// Wanted describes the part of its block that a text holds.
type Wanted struct {
	// Most bounds the memory of the text, beyond two slabs, if there is no room in the file: a text that needs more
	// lets all its records go. They can be read again.
	Most int64
	// Only, if set, chooses records. The text holds only these, even if they take more than Most.
	Only func(record uint64) bool
}

// Least is the memory that a text may always take.
const Least = heldSlabs * SlabBytes

// Memory returns the most memory that a text of `raw` bytes takes while it is read, if no other text takes the file's
// room meanwhile.
func (s Store) Memory(raw int64) int64 {
	if raw > Least && s.File.hasRoom(raw) {
		return Least
	}
	return raw
}
