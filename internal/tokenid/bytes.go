package tokenid

import "unsafe"

// Bytes returns the memory of ids. The machine is little-endian, as files and messages are.
func Bytes[T uint16 | uint32](ids []T) []byte {
	var id T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), int(unsafe.Sizeof(id))*len(ids))
}

// IDs returns the ids in b. They are b's memory if it is aligned, or else a copy.
func IDs[T uint16 | uint32](b []byte) []T {
	var id T
	size := int(unsafe.Sizeof(id))
	start := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(start)%uintptr(size) == 0 {
		return unsafe.Slice((*T)(start), len(b)/size)
	}
	out := make([]T, len(b)/size)
	copy(Bytes(out), b)
	return out
}

// IsWide reports whether any id needs more than 16 bits.
func IsWide(ids []uint32) bool {
	all := uint32(0)
	for _, id := range ids {
		all |= id
	}
	return all > 1<<16-1
}
