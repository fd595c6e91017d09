package least

import "golang.org/x/sys/cpu"

// Of returns the least key. The number of keys is a multiple of Row, and not zero.
func Of(keys []uint32) uint32 {
	if cpu.X86.HasAVX2 {
		return ofVectors(&keys[0], len(keys)/Row)
	}
	return ofRows(keys)
}

// ofVectors needs AVX2.
//
//go:noescape
func ofVectors(keys *uint32, rows int) uint32
