package normal

// Characters that Unicode got after version 10 have no combining class and no decomposition in the tables of tokenizers
// 0.23. Those of golang.org/x/text 0.43 are listed here.

// markedLater reports whether a character is a mark of a later Unicode, with a combining class.
func markedLater(r rune) bool {
	switch {
	case r == 0x7fd, r >= 0x898 && r <= 0x89f, r >= 0x8ca && r <= 0x8d3, r == 0x9fe, r == 0xc3c,
		r >= 0xd3b && r <= 0xd3c, r == 0xeba, r == 0x1715, r >= 0x1abf && r <= 0x1ace, r >= 0x1df6 && r <= 0x1dfa,
		r == 0xa82c, r >= 0x10d24 && r <= 0x10d27, r >= 0x10eab && r <= 0x10eac, r >= 0x10efd && r <= 0x10eff,
		r >= 0x10f46 && r <= 0x10f50, r >= 0x10f82 && r <= 0x10f85, r == 0x11070, r == 0x1133b, r == 0x1145e,
		r >= 0x11839 && r <= 0x1183a, r >= 0x1193d && r <= 0x1193e, r == 0x11943, r == 0x119e0, r == 0x11a34,
		r == 0x11a47, r == 0x11a99, r == 0x11d42, r >= 0x11d44 && r <= 0x11d45, r == 0x11d97,
		r >= 0x11f41 && r <= 0x11f42, r >= 0x16ff0 && r <= 0x16ff1, r == 0x1e08f, r >= 0x1e130 && r <= 0x1e136,
		r == 0x1e2ae, r >= 0x1e2ec && r <= 0x1e2ef, r >= 0x1e4ec && r <= 0x1e4ef:
		return true
	}
	return false
}

// composedLater reports whether a character of a later Unicode has a decomposition.
func composedLater(r rune) bool {
	switch {
	case r == 0x32ff, r >= 0xa7f2 && r <= 0xa7f4, r == 0xab69, r >= 0x10781 && r <= 0x10785,
		r >= 0x10787 && r <= 0x107b0, r >= 0x107b2 && r <= 0x107ba, r == 0x11938, r >= 0x1e030 && r <= 0x1e06d,
		r == 0x1f16c, r >= 0x1fbf0 && r <= 0x1fbf9:
		return true
	}
	return false
}
