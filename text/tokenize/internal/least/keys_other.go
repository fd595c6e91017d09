//go:build !amd64

package least

// Of returns the least key. The number of keys is a multiple of Row, and not zero.
func Of(keys []uint32) uint32 { return ofRows(keys) }
