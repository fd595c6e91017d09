package mixing

// deficit returns the target minus the charges placed, in parts of One. It must be below 2^33 tokens in size.
func (t Target) deficit(placed int64) int64 { return (t.Whole-placed)<<shareBits + int64(t.Parts) }

// deviation returns the largest |placed - target| over all sources, in parts of One, and its source, ties to the
// smaller index; 0 and -1 without sources.
func deviation(placed []int64, targets []Target) (worst int64, source int) {
	source = -1
	for i, t := range targets {
		gap := t.deficit(placed[i])
		if gap < 0 {
			gap = -gap
		}
		if source < 0 || gap > worst {
			worst, source = gap, i
		}
	}
	return worst, source
}
