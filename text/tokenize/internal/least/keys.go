package least

// Row is the number of keys that are compared at once.
const Row = 16

// ofRows returns the least key of whole rows, of which there is at least one.
func ofRows(keys []uint32) uint32 {
	least := ^uint32(0)
	for ; len(keys) >= Row; keys = keys[Row:] {
		r := (*[Row]uint32)(keys)
		a := min(min(r[0], r[1]), min(r[2], r[3]))
		b := min(min(r[4], r[5]), min(r[6], r[7]))
		c := min(min(r[8], r[9]), min(r[10], r[11]))
		d := min(min(r[12], r[13]), min(r[14], r[15]))
		least = min(least, min(min(a, b), min(c, d)))
	}
	return least
}
