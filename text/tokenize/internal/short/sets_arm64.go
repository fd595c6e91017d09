package short

// prefetch asks for the sets of n queries and does not wait for them.
//
//go:noescape
func prefetch(sets *set, mask uint64, queries *Query, n int)
