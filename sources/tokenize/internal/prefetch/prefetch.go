//go:build amd64 || arm64

// Package prefetch asks the processor for cache lines ahead of their use. Go has no instruction for it.
package prefetch

import "unsafe"

// Sets asks for the first cache line of one set of a table for each of n hashes, and does not wait for the lines. Sets
// have 64 bytes, their number is mask + 1, and the low bits of a hash choose the set. hash is the first hash; each next
// one lies stride bytes behind.
//
//go:noescape
func Sets(table unsafe.Pointer, mask uint64, hash *uint64, stride uintptr, n int)
