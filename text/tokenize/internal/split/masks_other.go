//go:build !amd64

package split

// classify writes the masks of 64 bytes.
func classify(t *[blockWidth]byte, m *masks) { classifyWords(t, m) }
