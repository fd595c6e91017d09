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
		cluster, rest, _, _ := uniseg.FirstGraphemeCluster(text, -1)
		text = rest
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
