package decode

// SlabBytes is the size of a slab of block text. It is small, because the text of a small block takes a whole slab, and
// a process with many sources holds many small blocks.
const SlabBytes = 128 << 10

// heldText is the text that stays in memory. Longer ones go to a file, slab by slab.
const heldText = 2 * SlabBytes

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
	if cap(slab) != SlabBytes {
		return
	}
	select {
	case s <- slab[:0]:
	default:
	}
}

// Store is where texts lie: in slabs, and in a file. All feeds of a process share both.
type Store struct {
	Slabs Slabs
	File  *File // nil: texts stay in memory
}

// Memory returns the most memory that a text of so many bytes takes while it is read.
func (s Store) Memory(raw int64) int64 {
	if !s.File.hasRoom() {
		return raw
	}
	return min(raw, heldText+SlabBytes)
}

// recycle takes a slab that is not used any more.
func (s Store) recycle(b slab) {
	if b.bytes == nil {
		s.File.give(b.at, b.n)
	} else {
		s.Slabs.recycle(b.bytes)
	}
}

// put moves a slab to the file, unless it is there or empty, or the file has no room. It returns the memory that is
// free then.
func (s Store) put(b *slab) (freed int) {
	if len(b.bytes) == 0 {
		return 0
	}
	at, ok := s.File.put(b.bytes)
	if !ok {
		return 0
	}
	freed = cap(b.bytes)
	s.Slabs.recycle(b.bytes)
	*b = slab{at: at, n: len(b.bytes)}
	return freed
}

// slab is a part of a text. Its bytes are in memory, or else n of them are in the store's file.
type slab struct {
	bytes []byte
	at    int64
	n     int
}
