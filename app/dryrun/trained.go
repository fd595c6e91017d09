package dryrun

import "millrace/sources"

// trainedOf returns the labels of a source's tokens that are in the loss, or estimates them.
func trainedOf(r *SourceReport, st *sources.Stats, seen *Found) uint64 {
	switch {
	case st.Counted && st.Known == st.Records:
		return st.Trained
	case r.TokensExact:
		return seen.Trained
	}
	return uint64(float64(r.Tokens) * float64(seen.Trained) / float64(max(seen.Labels, 1)))
}
