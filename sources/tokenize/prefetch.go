//go:build amd64 || arm64

package tokenize

import "unsafe"

// prefetch asks the processor for the cache lines of the sets of the first n queries, and does not wait for them. Go
// has no instruction for it.
//
//go:noescape
func prefetch(sets *shortPieces, queries *shortQuery, n int)

// The assembly relies on these sizes. Otherwise these lines do not compile.
const (
	_ = uint(shortSets-1<<16) + uint(1<<16-shortSets)
	_ = uint(unsafe.Sizeof(shortQuery{})-24) + uint(24-unsafe.Sizeof(shortQuery{}))
	_ = uint(unsafe.Offsetof(shortQuery{}.hash)-16) + uint(16-unsafe.Offsetof(shortQuery{}.hash))
	_ = uint(unsafe.Sizeof([2]shortPiece{})-64) + uint(64-unsafe.Sizeof([2]shortPiece{}))
)
