package split

import "golang.org/x/sys/cpu"

// classify writes the masks of 64 bytes.
func classify(t *[blockWidth]byte, m *masks) {
	if cpu.X86.HasAVX2 {
		classifyVectors(t, m)
	} else {
		classifyWords(t, m)
	}
}

// classifyVectors needs AVX2.
//
//go:noescape
func classifyVectors(t *[blockWidth]byte, m *masks)
