package decode

import "strings"

// longest bounds the texts that are compared.
const longest = 256

// Nearest returns the nearest candidate, if it differs in at most a third of its length, and "" otherwise.
func Nearest(given string, candidates []string) string {
	if len(given) > longest {
		return ""
	}
	best, bestCost := "", 1<<30
	for _, c := range candidates {
		cost := distance(strings.ToLower(given), c)
		if cost <= max(len(c)/3, 1) && cost < bestCost && cost < len(c) {
			best, bestCost = c, cost
		}
	}
	return best
}

// distance is the optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, now := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

// alternatives lists values as a sentence does.
func alternatives(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}
