package constructors

import "millrace"

// A segment that several ranks share is cut in zigzag, so that causal attention costs all ranks the same. Its padded
// length is cut into 2n equal chunks. Rank r of n has chunks r and 2n-1-r, one after the other. This is the order of
// Megatron's get_batch_on_this_cp_rank and of TransformerEngine's thd_get_partitioned_indices, document by document.
//
// A segment may also be split over data-parallel ranks (Assignment.Parts). Context-parallel rank c of C, with part Part
// of Parts, then has the chunks of rank Part*C + c of Parts*C.

// run is a contiguous part of a segment's tokens: tokens [from, to), at column `at` of the row.
type run struct{ at, from, to int }

// extent is the size of a varlen microbatch for one rank.
type extent struct {
	segments int // segments that are sliced
	shared   int // padded tokens of the sliced segments, before slicing; without sliced segments: Collator.least
	held     int // segments that this rank holds whole
	own      int // padded tokens of the held segments
}

// arranged is a microbatch in the order in which one rank builds it: slices first, then the segments that the rank
// holds whole. Start of a slice counts columns before slicing. Start of a held segment counts columns of the rank's
// arrays.
type arranged struct {
	part   []millrace.Assignment
	tokens []Tokens
	masked []bool
	extent
}

// least returns the padded tokens of a varlen microbatch without sliced segments: the length of one masked document.
func (c *Collator) least() int {
	if c.ranks == 1 {
		return 1
	}
	return 2 * int(c.ranks)
}

// arrange puts a microbatch into the order in which this rank builds it. tokens and masked may be nil.
func (c *Collator) arrange(part []millrace.Assignment, tokens []Tokens, masked []bool) arranged {
	if !c.shape.Local {
		in := arranged{
			part:   part,
			tokens: tokens,
			masked: masked,
			extent: extent{segments: len(part), shared: c.least()},
		}
		if len(part) > 0 {
			last := &part[len(part)-1]
			in.shared = int(last.Start + last.Columns(c.pad))
		}
		return in
	}
	var in arranged
	take := func(i int, start int) {
		a := part[i]
		a.Start = uint32(start)
		in.part = append(in.part, a)
		if tokens != nil {
			in.tokens = append(in.tokens, tokens[i])
		}
		if masked != nil {
			in.masked = append(in.masked, masked[i])
		}
	}
	for i := range part {
		if part[i].Holder == 0 {
			take(i, in.shared)
			in.shared += int(part[i].Columns(c.pad))
			in.segments++
		}
	}
	if in.segments == 0 {
		in.shared = c.least()
	}
	for i := range part {
		if part[i].Holder == c.rank+1 {
			take(i, in.shared/int(c.ranks)+in.own)
			in.own += int(part[i].Columns(c.pad))
			in.held++
		}
	}
	return in
}

// room returns the number of columns that a segment takes in its row, before slicing: its padded length if it is
// sliced, else its tokens. ok is false if the segment cannot be cut into equal chunks, or if this shape forbids it.
func (c *Collator) room(a *millrace.Assignment) (columns uint64, ok bool) {
	if a.Holder > 0 {
		return uint64(a.Length), c.shape.Local && a.Parts == 0
	}
	if a.Parts == 0 && c.ranks == 1 {
		return uint64(a.Length), a.Part == 0
	}
	columns = uint64(a.Columns(c.pad))
	return columns, columns%(2*uint64(c.ranks)) == 0 && a.Start%c.ranks == 0 && a.Part < max(a.Parts, 1)
}

// runs writes the rank's runs of a segment to out, and returns the used part of out.
func (c *Collator) runs(a *millrace.Assignment, out *[2]run) []run {
	if a.Holder > 0 || a.Parts == 0 && c.ranks == 1 {
		out[0] = run{int(a.Start), 0, int(a.Length)}
		return out[:1]
	}
	chunk, length := int(a.Columns(c.pad)/(2*c.ranks)), int(a.Length)
	chunks := 2 * int(max(a.Parts, 1)*c.ranks)
	first, at := int(a.Part*c.ranks+c.rank), int(a.Start/c.ranks)
	for i, number := range [2]int{first, chunks - 1 - first} {
		out[i] = run{at + i*chunk, min(number*chunk, length), min((number+1)*chunk, length)}
	}
	return out[:]
}
