package tokenid

import "encoding/binary"

// CountUntrained returns the number of ids that are left out of the loss.
func CountUntrained(ids []uint32) (n uint32) {
	for ; len(ids) >= 8; ids = ids[8:] {
		if ids[0]|ids[1]|ids[2]|ids[3]|ids[4]|ids[5]|ids[6]|ids[7] < Untrained {
			continue // none of the eight, as in plain text
		}
		for _, id := range ids[:8] {
			n += id >> 31
		}
	}
	for _, id := range ids {
		n += id >> 31
	}
	return n
}

// Runs are the tokens of a document that are left out of the loss: the lengths of its runs of trained and of untrained
// tokens in turn, as unsigned varints. The first run is trained, and may be empty. Tokens after the last run are
// trained.
type Runs []byte

// RunsOf returns the runs of ids, nil if all are trained.
func RunsOf(ids []uint32) (out Runs) {
	from, is := 0, uint32(0)
	for i, id := range ids {
		if id>>31 != is {
			out = binary.AppendUvarint(out, uint64(i-from))
			from, is = i, id>>31
		}
	}
	if is == 1 {
		out = binary.AppendUvarint(out, uint64(len(ids)-from))
	}
	return out
}

// Append appends a run of trained tokens, and a run of untrained ones behind it.
func (r Runs) Append(trained, untrained uint32) Runs {
	return binary.AppendUvarint(binary.AppendUvarint(r, uint64(trained)), uint64(untrained))
}

// Untrained returns the number of untrained tokens among those from one place to before another.
func (r Runs) Untrained(from, to uint32) (n uint32) {
	at, is := uint64(0), false
	for len(r) > 0 && at < uint64(to) {
		length, size := binary.Uvarint(r)
		if size <= 0 {
			return n // cut off
		}
		end := min(at+length, uint64(to))
		if begin := max(at, uint64(from)); is && begin < end {
			n += uint32(end - begin)
		}
		r, at, is = r[size:], end, !is
	}
	return n
}
