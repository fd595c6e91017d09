package charsmap

import (
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// clusterMax is the length from which on a cluster of characters is rewritten character by character.
const clusterMax = 6

// Append appends text to dst, rewritten as Hugging Face's tokenizers do it. They take the shortest rule for a short
// cluster of characters, with all of the cluster gone, and else one rule a character. SentencePiece takes the longest
// rule at each place, for which [Map.Longest] serves. text is UTF-8.
func (m *Map) Append(dst, text []byte) []byte {
	for len(text) > 0 {
		if b := text[0]; b < utf8.RuneSelf && b != '\r' && m.plain[b] && (len(text) == 1 || text[1] < utf8.RuneSelf) {
			dst, text = append(dst, b), text[1:]
			continue
		}
		cluster := firstCluster(text)
		text = text[len(cluster):]
		if len(cluster) < clusterMax {
			if to, ok := m.shortest(cluster); ok {
				dst = append(dst, to...)
				continue
			}
		}
		for len(cluster) > 0 {
			_, n := utf8.DecodeRune(cluster)
			if to, ok := m.shortest(cluster[:n]); ok {
				dst = append(dst, to...)
			} else {
				dst = append(dst, cluster[:n]...)
			}
			cluster = cluster[n:]
		}
	}
	return dst
}

// firstCluster returns the first cluster of a text by the tables of tokenizers 0.23.3, which are of Unicode 17. Those
// of uniseg are of Unicode 15. Other rules that are new since then join clusters of [clusterMax] bytes or more.
func firstCluster(text []byte) []byte {
	cluster, rest, _, _ := uniseg.FirstGraphemeCluster(text, -1)
	for len(rest) > 0 {
		if r, _ := utf8.DecodeRune(rest); !isLaterMark(r) || !isMarked(cluster) {
			break
		}
		var next []byte
		next, rest, _, _ = uniseg.FirstGraphemeCluster(rest, -1)
		cluster = text[:len(cluster)+len(next)]
	}
	return cluster
}

// isMarked reports whether a mark behind a cluster belongs to it. It does unless the cluster is a control character.
func isMarked(cluster []byte) bool {
	first, _ := utf8.DecodeRune(cluster)
	marked := utf8.AppendRune(nil, first)
	n := len(marked)
	joined, _, _, _ := uniseg.FirstGraphemeCluster(append(marked, "\u0300"...), -1)
	return len(joined) > n
}

// isLaterMark reports whether a character joins the cluster before it since Unicode 16 or 17. These are the characters
// behind an A that tokenizers 0.23.3 takes to the cluster of the A, and uniseg 0.4.7 does not.
func isLaterMark(r rune) bool {
	switch {
	case r == 0x897, r >= 0x1acf && r <= 0x1add, r >= 0x1ae0 && r <= 0x1aeb, r >= 0x10d69 && r <= 0x10d6d,
		r >= 0x10efa && r <= 0x10efc, r >= 0x113b8 && r <= 0x113c0, r == 0x113c2, r == 0x113c5,
		r >= 0x113c7 && r <= 0x113ca, r >= 0x113cc && r <= 0x113d0, r == 0x113d2, r >= 0x113e1 && r <= 0x113e2,
		r >= 0x11b60 && r <= 0x11b67, r == 0x11f5a, r >= 0x1611e && r <= 0x1612f, r >= 0x1e5ee && r <= 0x1e5ef,
		r == 0x1e6e3, r == 0x1e6e6, r >= 0x1e6ee && r <= 0x1e6ef, r == 0x1e6f5:
		return true
	}
	return false
}
